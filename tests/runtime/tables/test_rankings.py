"""Compare ranked rows of many partitions with DuckDB's, with large batches."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.queries.expressions import Call, Column, Expr, Literal, Output
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import PLACE, RankFunction, SortKey, View
from anabranch_runtime.tables.ordered import least_tuples
from anabranch_runtime.tables.table import MaintainedTable
from tests.runtime.tables.test_table import Presented

_BIGINT, _STRING = parse_type("bigint"), parse_type("string")
_SCHEMA = pa.schema([("p", pa.int64()), ("q", pa.string()), ("x", pa.int64()), ("s", pa.string())])
_KINDS = {"p": _BIGINT, "q": _STRING, "x": _BIGINT, "s": _STRING}
_COLUMNS = {name: Column("", name, kind) for name, kind in _KINDS.items()}


@dataclass(frozen=True)
class _Case:
    """Case: a ranking by ``order``: column -> whether it is descending.

    Attributes:
        outputs: name -> expression and DuckDB's text of it.
    """

    partition: tuple[str, ...]
    order: dict[str, bool]
    limit: int | None
    ranking: RankFunction = RankFunction.ROW_NUMBER
    offset: int = 0
    outputs: tuple[str, ...] = ("p", "q", "x", "s")

    @property
    def view(self) -> View:
        order = tuple(SortKey(_COLUMNS[n], down, not down) for n, down in self.order.items())
        shown = tuple(Output(name, _expression(name)) for name in self.outputs)
        partition = tuple((name, _KINDS[name]) for name in self.partition)
        return View(
            False, (), (), shown, order=order, limit=self.limit, offset=self.offset,
            partition=partition, ranking=self.ranking,
        )  # fmt: skip

    @property
    def sql(self) -> str:
        words = [f"{n} {'DESC NULLS LAST' if d else 'NULLS FIRST'}" for n, d in self.order.items()]
        ties = [f"{n} NULLS FIRST" for n in _KINDS]
        over = f"PARTITION BY {', '.join(self.partition)} " if self.partition else ""
        row = f"row_number() OVER ({over}ORDER BY {', '.join([*words, *ties])})"
        own = words if self.ranking is not RankFunction.ROW_NUMBER else [*words, *ties]
        place = f"{self.ranking}() OVER ({over}ORDER BY {', '.join(own)})"
        shown = ", ".join(f"{_TEXTS.get(n, n)} AS {n}" for n in self.outputs)
        hidden = "".join(f", {n} AS anabranch_{n}" for n in self.partition if n not in self.outputs)
        most = "" if self.limit is None else f"AND place <= {self.limit + self.offset}"
        return (
            f"SELECT {shown}{hidden}, nth - {self.offset} AS anabranch_rank FROM "
            f"(SELECT *, {row} AS nth, {place} AS place FROM net) "
            f"WHERE nth > {self.offset} {most}"
        )


_TEXTS = {"half": "x // 4", "place": "place"}


def _expression(name: str) -> Expr:
    if name == "half":
        return Call("div_int", (_COLUMNS["x"], Literal(4, _BIGINT)), _BIGINT)
    return Column("", PLACE, _BIGINT) if name == "place" else _COLUMNS[name]


_R = RankFunction
_CASES = (
    _Case(("p",), {"x": True}, 1),
    _Case(("p", "q"), {"x": False, "s": True}, 3),
    _Case(("q",), {"s": True, "x": False}, 2),
    _Case(("p",), {"x": True}, 2, _R.RANK),
    _Case(("p",), {"s": False}, 2, _R.RANK, outputs=("p", "s", "place")),
    _Case(("p",), {"x": True}, 2, _R.DENSE_RANK),
    _Case((), {"x": True, "s": False}, 700),
    _Case((), {"x": False}, 50, offset=20),
    _Case(("p",), {"s": False}, None),
    # Outputs that are often equal for different rows, and without the partition.
    _Case(("q",), {"x": True, "s": False}, 4, outputs=("half",)),
    _Case(("p",), {"x": True}, 3, outputs=("half", "place")),
)


def _rows(random: Random, count: int, partitions: int) -> pa.Table:
    def some(values: int) -> list[int | None]:
        return [random.randrange(values) if random.random() < 0.98 else None for _ in range(count)]

    texts = [[None if n is None else f"t{n:03}" for n in some(values)] for values in (40, 300)]
    columns = (some(partitions), texts[0], some(30), texts[1])
    return pa.table(list(columns), schema=_SCHEMA)


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("number", range(len(_CASES)))
def test_many_partitions(number: int, deletes: bool) -> None:
    one, random = _CASES[number], Random(number)
    table, shown = MaintainedTable(one.view, _SCHEMA, deletes=deletes), Presented(one.view)
    net, connection = _SCHEMA.empty_table(), duckdb.connect()
    for version in range(1, 7):
        # Few rows after many, and partitions that have most rows.
        rows = _rows(random, random.choice((5, 300, 1500)), random.choice((3, 400)))
        weights = np.ones(rows.num_rows, np.int64)
        given, kept = rows, net
        if deletes and net.num_rows:
            gone = random.sample(range(net.num_rows), net.num_rows // 3)
            kept = net.take(sorted(set(range(net.num_rows)) - set(gone)))
            given = pa.concat_tables([rows, net.take(gone)])
            weights = np.concatenate([weights, np.full(len(gone), -1)])
        net = pa.concat_tables([kept, rows])
        shown.change(table.apply(given, weights if deletes else None, version), version)
        shown.compare(connection.register("net", net).sql(one.sql).to_arrow_table())
        assert len(table) == len(shown.rows)
        every = table.rows(None)
        assert every.num_rows == len(table)
        for most in (0, 1, 17, 100_000):
            assert table.rows(most).to_pylist() == every.slice(0, most).to_pylist()
        if version == 3:
            table = MaintainedTable.load(one.view, _SCHEMA, table.dump(), deletes=deletes)
            assert table.rows(None) == every


def test_ranked_texts_that_are_no_longer_used_are_dropped() -> None:
    table = MaintainedTable(_Case(("p",), {"x": True}, 1).view, _SCHEMA)
    for number in range(40):
        texts = [f"{number:06} {n}" * 3 for n in range(1000)]
        columns = (list(range(1000)), texts, [number] * 1000, texts)
        table.apply(pa.table(list(columns), schema=_SCHEMA), None, number)
    assert len(table) == 1000
    assert table.rows(1)["s"].to_pylist() == ["000039 0" * 3]
    assert table.bytes < 1_500_000


def test_least_tuples() -> None:
    generator = np.random.default_rng(1)
    for _ in range(200):
        shape = generator.integers(1, 60), generator.integers(1, 4)
        tuples = generator.integers(-3, 3, shape)
        texts = (generator.random(shape[1]) < 0.2).astype(np.int64)
        most = int(generator.integers(0, 70))
        found = least_tuples(tuples, texts, most)
        assert len(set(found.tolist())) == len(found) >= min(most, len(tuples))
        # Words after a text are unknown: tuples that are equal up to it stay together.
        known = int(np.argmax(texts)) if texts.any() else shape[1]
        left = sorted(set(range(len(tuples))) - set(found.tolist()))
        if known and len(found) and left:
            rows = [tuple(row[:known]) for row in tuples.tolist()]
            assert max(rows[n] for n in found) <= min(rows[n] for n in left)

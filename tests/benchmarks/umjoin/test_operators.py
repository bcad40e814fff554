"""Compare join operators over state backends with DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_runtime.errors import PipelineError
from benchmarks.umjoin.backends.interface import Backend, BackendKind
from benchmarks.umjoin.operators.binary_tree import BinaryTree, trees
from benchmarks.umjoin.operators.joins import Equality, Input, Join, TimeBound
from benchmarks.umjoin.operators.multi_join import MultiJoin, any_orders, probe_orders
from tests.support.surroundings.backends import DOMAINS, KINDS, PLENTY, array, opened
from tests.support.surroundings.folders import passing_folder

every_kind = pytest.mark.parametrize("kind", KINDS)
_NAMES = ("r", "s", "t", "u")
_DAY = dt.datetime(2024, 3, 1)  # noqa: DTZ001 - without zone, as DuckDB has it


def expected(join: Join, tables: Mapping[str, pa.Table]) -> list[tuple[int, ...]]:
    """Return the ids of all expected results, by DuckDB."""
    conditions = [
        f"{a[0]}.{a[1]} = {b[0]}.{b[1]}" for a, b in ((e.left, e.right) for e in join.equalities)
    ]
    for bound in join.bounds:
        later, earlier = f"{bound.later}.at", f"{bound.earlier}.at"
        conditions.append(f"epoch_us({later}) - epoch_us({earlier}) <= {bound.most}")
    conditions += [f"{i.name}.at IS NOT NULL" for i in join.inputs if i.event_time]
    with duckdb.connect() as db:
        for name, rows in tables.items():
            db.register(name, rows)
        ids = ", ".join(f"{name}.id" for name in join.by_name)
        sql = f"SELECT {ids} FROM {', '.join(join.by_name)} WHERE {' AND '.join(conditions)}"
        return sorted(db.execute(sql).fetchall())


def ids_of(results: Sequence[pa.RecordBatch], join: Join) -> list[tuple[int, ...]]:
    """Return the ids of emitted results."""
    found: list[tuple[int, ...]] = []
    for rows in results:
        found += zip(*(rows.column(f"{n}.id").to_pylist() for n in join.by_name), strict=True)
    return sorted(found)


@st.composite
def joins(draw: st.DrawFn) -> tuple[Join, dict[str, list[Any]]]:
    """Draw a connected join of two to four inputs, and the types of its columns
    ``<input>.<column>``.
    """
    names = _NAMES[: draw(st.integers(2, 4))]
    timed = draw(st.booleans())
    columns: dict[str, list[tuple[str, pa.DataType]]] = {n: [("id", pa.int64())] for n in names}
    values: dict[str, list[Any]] = {}
    equalities = []
    one_class = draw(st.booleans())
    shared = draw(st.sampled_from(DOMAINS))

    def attribute(name: str, domain: Any) -> tuple[str, str]:
        column = f"c{len(columns[name])}"
        columns[name].append((column, draw(st.sampled_from(domain[0]))))
        values[f"{name}.{column}"] = domain[2]
        return name, column

    keys = {n: attribute(n, shared) for n in names}
    for i, name in enumerate(names[1:], 1):
        other = draw(st.sampled_from(names[:i]))
        if one_class:
            equalities.append(Equality(keys[other], keys[name]))
        else:
            domain = draw(st.sampled_from(DOMAINS))
            equalities.append(Equality(attribute(other, domain), attribute(name, domain)))
    if draw(st.booleans()):
        a, b = draw(st.sampled_from(list(pairwise(names))))
        equalities.append(Equality(attribute(a, shared), attribute(b, shared)))
    if timed:
        for name in names:
            columns[name].append(("at", pa.timestamp("us")))
    bounds = [
        TimeBound(a, b, draw(st.integers(-2, 6)) * 1_000_000)
        for a in names
        for b in names
        if timed and a != b and draw(st.integers(0, 2)) == 0
    ]
    inputs = [Input(n, pa.schema(columns[n]), "at" if timed else None) for n in names]
    return Join(tuple(inputs), tuple(equalities), tuple(bounds)), values


def _arrivals(
    draw: Any, join: Join, values: dict[str, list[Any]], batch: int, ids: dict[str, int]
) -> dict[str, pa.RecordBatch]:
    found = {}
    for one in join.inputs:
        if draw(st.integers(0, 4)) == 0:
            continue
        count = draw(st.integers(0, 8))
        arrays = []
        for field in one.columns:
            if field.name == "id":
                arrays.append(pa.array(range(ids[one.name], ids[one.name] + count), pa.int64()))
            elif field.name == "at":
                seconds = [2 * batch + draw(st.integers(0, 4)) for _ in range(count)]
                nulls = [draw(st.integers(0, 9)) == 0 for _ in range(count)]
                times = [_DAY + dt.timedelta(seconds=s) for s in seconds]
                arrays.append(
                    pa.array([None if n else t for t, n in zip(times, nulls, strict=True)],
                             field.type)
                )  # fmt: skip
            else:
                domain = values[f"{one.name}.{field.name}"]
                some = st.one_of(st.none(), *[st.sampled_from(domain)] * 4)
                arrays.append(array([draw(some) for _ in range(count)], field.type))
        ids[one.name] += count
        found[one.name] = pa.RecordBatch.from_arrays(arrays, schema=one.columns)
    return found


@every_kind
@given(data=st.data())
@settings(max_examples=10)
def test_operators_find_what_duckdb_finds(kind: BackendKind, data: st.DataObject) -> None:
    """Both operators over random joins, types, NULLs, duplicates, batches, expiry, reopening."""
    join, values = data.draw(joins())
    orders = {
        n: data.draw(st.sampled_from(list(probe_orders(join, n))), label=n) for n in join.by_name
    }
    tree = data.draw(st.sampled_from(list(trees(join))))
    operators: list[MultiJoin | BinaryTree] = [MultiJoin(join, orders), BinaryTree(join, tree)]
    results: list[list[pa.RecordBatch]] = [[], []]
    arrived: dict[str, list[pa.RecordBatch]] = {n: [] for n in join.by_name}
    ids = dict.fromkeys(join.by_name, 0)
    expiring = data.draw(st.booleans())
    with passing_folder() as folder:
        backends = [opened(folder / str(i), o.tables, kind) for i, o in enumerate(operators)]
        try:
            for batch in range(data.draw(st.integers(1, 9))):
                some = _arrivals(data.draw, join, values, batch, ids)
                for name, rows in some.items():
                    arrived[name].append(rows)
                # Later tuples have event times of at least twice the next batch's number.
                least = int(_DAY.replace(tzinfo=dt.UTC).timestamp()) + 2 * (batch + 1)
                watermarks = dict.fromkeys(join.by_name, least * 1_000_000) if expiring else None
                for i, operator in enumerate(operators):
                    if data.draw(st.integers(0, 3)) == 0:
                        backends[i].close()
                        backends[i] = opened(folder / str(i), operator.tables, kind)
                    produced = operator.process(
                        backends[i], batch, some, results[i].append, watermarks
                    )
                    assert produced.results == sum(produced.by_input.values())
        finally:
            for backend in backends:
                backend.close()
    tables = {
        one.name: pa.Table.from_batches(arrived[one.name], schema=one.columns)
        for one in join.inputs
    }
    wanted = expected(join, tables)
    for found in results:
        assert ids_of(found, join) == wanted


R_S_T = Join(
    (
        Input("r", pa.schema([("id", pa.int64()), ("a", pa.int64())])),
        Input("s", pa.schema([("id", pa.int64()), ("a", pa.int32()), ("b", pa.string())])),
        Input("t", pa.schema([("id", pa.int64()), ("b", pa.string())])),
    ),
    (Equality(("r", "a"), ("s", "a")), Equality(("s", "b"), ("t", "b"))),
)


def _many(batch: int, count: int, keys: int = 400) -> dict[str, pa.RecordBatch]:
    draw = np.random.default_rng(batch)
    ids = pa.array(np.arange(batch * count, (batch + 1) * count))
    a = pa.array(draw.integers(0, keys, count))
    b = pa.array(draw.integers(0, keys, count)).cast(pa.string())
    return {
        "r": pa.RecordBatch.from_arrays([ids, a], names=["id", "a"]),
        "s": pa.RecordBatch.from_arrays([ids, a.cast(pa.int32()), b], names=["id", "a", "b"]),
        "t": pa.RecordBatch.from_arrays([ids, b], names=["id", "b"]),
    }


@every_kind
def test_many_tuples_in_chunks_and_pieces(tmp_path: Path, kind: BackendKind) -> None:
    """Enough tuples for merges, several chunks and pieces; compares counts only."""
    batches, count = 8, 900
    tables = {
        name: pa.Table.from_batches([_many(b, count)[name] for b in range(batches)])
        for name in ("r", "s", "t")
    }
    with duckdb.connect() as db:
        for name, rows in tables.items():
            db.register(name, rows)
        sql = "SELECT count(*) FROM r, s, t WHERE r.a = s.a AND s.b = t.b"
        found = db.execute(sql).fetchone()
        assert found is not None
        (wanted,) = found
    operators = MultiJoin(R_S_T, any_orders(R_S_T)), BinaryTree(R_S_T, ("t", ("r", "s")))
    operator: MultiJoin | BinaryTree
    for operator in operators:
        with opened(tmp_path / type(operator).__name__, operator.tables, kind) as backend:
            done = [operator.process(backend, b, _many(b, count)) for b in range(batches)]
            assert sum(p.results for p in done) == wanted


def test_state_that_memory_can_not_hold_is_joined_from_disk(tmp_path: Path) -> None:
    """Join the same tuples with a memory limit that the memory backend refuses."""
    limit, batches, count = 3 << 20, 20, 4000
    operator = MultiJoin(R_S_T, any_orders(R_S_T))
    wanted = _counted(operator, tmp_path / "m", BackendKind.MEMORY, PLENTY, batches, count)
    with pytest.raises(Exception, match="the state needs"):
        _counted(operator, tmp_path / "n", BackendKind.MEMORY, limit, batches, count)
    assert _counted(operator, tmp_path / "l", BackendKind.LSM, limit, batches, count) == wanted


def _counted(
    operator: MultiJoin, folder: Path, kind: BackendKind, limit: int, batches: int, count: int
) -> int:
    def few(batch: int) -> dict[str, pa.RecordBatch]:
        rows = _many(batch, count, 40_000)
        # One in fifty tuples has a partner: the state is large, the result is not.
        kept = pa.array(np.arange(count) % 50 == 0)
        return {**rows, "s": rows["s"].filter(kept)}

    with opened(folder, operator.tables, kind, limit) as backend:
        return sum(operator.process(backend, b, few(b)).results for b in range(batches))


@pytest.mark.parametrize("kind_of_join", ["multi-way", "tree"])
def test_expired_rows_leave_tables_and_intermediate_results(kind_of_join: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("at", pa.timestamp("us"))])
    names = ("r", "s", "t")
    bounds = [TimeBound(a, b, 3_000_000) for a in names for b in names if a != b]
    join = Join(
        tuple(Input(n, columns, "at") for n in names),
        (Equality(("r", "k"), ("s", "k")), Equality(("s", "k"), ("t", "k"))),
        tuple(bounds),
    )
    tree = BinaryTree(join, (("r", "s"), "t"))
    assert set(tree.intermediate) == {"(r s)"}
    multi_way = kind_of_join == "multi-way"
    operator = MultiJoin(join, any_orders(join)) if multi_way else tree
    with passing_folder() as folder, opened(folder, operator.tables, BackendKind.LSM) as backend:
        for batch in range(40):
            at = pa.array([batch * 1_000_000] * 10).cast(pa.timestamp("us"))
            rows = pa.RecordBatch.from_arrays(
                [pa.array(range(10)), pa.array([1] * 10), at], schema=columns
            )
            watermarks = dict.fromkeys(names, batch * 1_000_000)
            operator.process(backend, batch, dict.fromkeys(names, rows), None, watermarks)
        for table in backend.statistics().tables.values():
            assert table.segments is not None
            assert table.segments <= 10


def test_bad_joins_orders_and_trees_are_refused() -> None:
    r, s, _ = R_S_T.inputs
    cases: list[tuple[Any, str, str]] = [
        (lambda: Join((r,), ()), "bad-join", "two inputs"),
        (lambda: Join((r, s), ()), "bad-join", "no equality joins 's'"),
        (lambda: Join((r, s), (Equality(("r", "x"), ("s", "a")),)), "bad-join", "r.x"),
        (lambda: Join((r, s), (Equality(("r", "a"), ("s", "b")),)), "bad-join", "compared"),
        (
            lambda: Join((r, s), (Equality(("r", "a"), ("s", "a")),), (TimeBound("r", "s", 1),)),
            "bad-join",
            "event time",
        ),
        (lambda: MultiJoin(R_S_T, {}), "bad-probe-order", "'r'"),
        (
            lambda: MultiJoin(R_S_T, {**any_orders(R_S_T), "r": ("t", "s")}),
            "bad-probe-order",
            "nothing joins 't'",
        ),
        (lambda: BinaryTree(R_S_T, ("r", "s")), "bad-tree", "each input once"),
        (lambda: BinaryTree(R_S_T, (("r", "t"), "s")), "bad-tree", "nothing joins"),
    ]
    for make, code, said in cases:
        with pytest.raises(PipelineError, match=said) as error:
            make()
        assert error.value.code == code
        assert error.value.remedy
    assert len(list(trees(R_S_T))) == 2
    assert len({t.name for t in R_S_T.inputs}) == 3


def test_arrivals_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    operator = MultiJoin(R_S_T, any_orders(R_S_T))
    with opened(tmp_path / "s", operator.tables, BackendKind.LSM) as backend:
        rows = _many(0, 3)["r"]
        for arrivals in ({"x": rows}, {"s": rows}):
            with pytest.raises(PipelineError) as error:
                operator.process(backend, 0, arrivals)
            assert error.value.code == "bad-arrivals"
        assert _state(backend) == 0


def _state(backend: Backend) -> int:
    return sum(t.rows for t in backend.statistics().tables.values())

"""A pipeline whose streams' columns get wider types or are dropped, in this process (:mod:`.fed`).

``R`` is a directory of Parquet files, and some keep the narrower types; ``S`` is a Redis Stream of
JSON, whose ``w`` is widened twice. Both are retained. Every epoch has a random plan. Some queries
of the first epoch end where a type changes, and the others go on. The oracle knows the
batch of every row from the queries ``r`` and ``s``, and so the type with which it was stored.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from tests.support.worlds.fed import KEYS
from tests.support.worlds.fed_epochs import FedEpochs

#: Stream -> column -> its successive types; empty: the column is dropped.
COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "R": {
        "a": ("bigint",),
        "n": ("bigint",),
        "v": ("int", "bigint"),
        "f": ("float", "double"),
        "d": ("decimal(6,2)", "decimal(12,2)"),
        "t": ("date", "timestamp_ntz"),
        "x": ("bigint", ""),
    },
    "S": {
        "a": ("bigint",),
        "n": ("bigint",),
        "w": ("smallint", "int", "bigint"),
        "g": ("float", "double"),
        "y": ("string", "string", ""),
    },
}
#: Queries from the first epoch on, whose results keep their types.
QUERIES = {
    "r": "SELECT R.a, R.n FROM R",
    "s": "SELECT S.a, S.n FROM S",
    "keyed": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.v = S.w",
    "filtered": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.a = S.a "
    "WHERE R.v > 1 AND S.w IN (0, 1, 2, 5) AND R.d <= 3.5 AND CAST(R.f AS DOUBLE) < 0.25",
    "cast": "SELECT R.n AS r, S.n AS s, CAST(R.v AS BIGINT) AS v, CAST(R.f AS DOUBLE) AS f, "
    "CAST(R.d AS DECIMAL(12,2)) AS d, CAST(R.t AS TIMESTAMP_NTZ) AS t, "
    "CAST(S.w AS BIGINT) AS w FROM R JOIN S ON R.a = S.a AND CAST(R.f AS DOUBLE) <= S.n",
    "three": "SELECT R.n AS r, S.n AS s, T.n AS t, CAST(T.w AS BIGINT) AS w FROM R "
    "JOIN S ON R.v = S.w JOIN S AS T ON T.a = R.a",
    "floats": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.f = S.g",
}
#: View from the first epoch on; its maintained table keeps sums.
SUMS = (
    "SELECT S.a, count(*) AS c, sum(CAST(R.v AS BIGINT)) AS v, "
    "max(CAST(R.d AS DECIMAL(12,2))) AS d FROM R JOIN S ON R.a = S.a WHERE S.w >= 0 GROUP BY S.a"
)
#: Queries that end at the first wider type; the same SQL is registered again when all types are
#: wide.
ENDING = {
    "hashed": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON hash(R.v) = hash(S.w) "
    "WHERE hash(R.v) <> 0",
    "summed": "SELECT R.n AS r, S.n AS s, R.v + 1 AS v FROM R JOIN S ON R.v + 1 = S.w + 1",
    "texts": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.a = S.a "
    "WHERE CAST(R.f AS STRING) <> '0.1' AND R.f >= 0.1",
}
#: Queries that end at that time, too, and read columns that are dropped.
DROPPED = {
    "gone": "SELECT R.n AS r, S.n AS s, R.x, S.y FROM R JOIN S ON R.a = S.a "
    "WHERE R.x > 0 AND S.y <> 'b'",
    "key_gone": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.x = S.w",
}
#: Queries that are registered when all types are wide.
LATER = {
    "shown": "SELECT R.n AS r, S.n AS s, R.v, R.f, R.d, R.t, S.w, S.g FROM R JOIN S ON R.a = S.a",
    "great": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.v = S.w WHERE R.v > 3000000000",
}
#: Hash equalities in DuckDB's SQL: equal values have equal hashes, also NULLs.
_IN_DUCKDB = {
    "hash(R.v) = hash(S.w)": "R.v IS NOT DISTINCT FROM S.w",
    "hash(R.v) <> 0": "TRUE",
    "TIMESTAMP_NTZ": "TIMESTAMP",
}


class WidenedColumns(FedEpochs):
    """The pipeline, and all its input rows: stream -> number -> values by column."""

    names = "RS"
    epochs = range(0, 14, 2)

    def __init__(self, url: str, home: Path, seed: int) -> None:
        self.chance = chance = Random(f"widened columns {seed}")
        self.given: dict[str, dict[int, dict[str, Any]]] = {"R": {}, "S": {}}
        self.since = {"R": (chance.choice((2, 4, 6)),), "S": (chance.choice((2, 4)), 6)}
        #: Activations, kept here since the state forgets queries that ended long ago.
        self.activations: dict[str, Activation] = {}
        #: Maintained tables are kept by a separate process, which is slow to restart.
        self.keeps = seed % 4 == 3
        self.numbers, self.wide_registered, self._published = 0, False, False
        self.home = home
        super().__init__(url, home)

    # --- definitions ---------------------------------------------------------------------------

    def kinds(self, name: str, step: int) -> dict[str, str]:
        """Return the columns' types after ``step`` changes of the stream's types."""
        found = {c: kinds[min(step, len(kinds) - 1)] for c, kinds in COLUMNS[name].items()}
        return {c: kind for c, kind in found.items() if kind}

    def _changed(self, name: str, step: int) -> dict[str, tuple[tuple[str, str], ...]]:
        """Return the widened and the dropped columns with their first types."""
        now = self.kinds(name, step)
        first = [(c, kinds[0]) for c, kinds in COLUMNS[name].items()]
        return {
            "widened": tuple((c, kind) for c, kind in first if now.get(c, kind) != kind),
            "dropped": tuple((c, kind) for c, kind in first if c not in now),
        }

    def spec(self, name: str, epoch: int) -> Stream:
        """Return a stream's definition in an epoch."""
        step = self._step(name, epoch)
        columns = tuple((c, parse_type(kind)) for c, kind in self.kinds(name, step).items())
        changed = {
            of: tuple((c, parse_type(kind)) for c, kind in found)
            for of, found in self._changed(name, step).items()
        }
        widened, dropped = changed["widened"], changed["dropped"]
        return Stream(StreamName(name), columns, widened=widened, dropped=dropped, retain=None)

    def statements(self, epoch: int) -> dict[str, str]:
        """Return the queries' SQL in an epoch."""
        steps = [self._step(name, epoch) for name in "RS"]
        found = QUERIES | ({"sums": SUMS} if self.keeps else {})
        if not any(steps):
            found |= ENDING | DROPPED
        if steps == [len(self.since[name]) for name in "RS"]:
            found |= LATER | {f"{name}_again": text for name, text in ENDING.items()}
        return found

    def _rules(self, epoch: int) -> Ruleset:
        specs = [self.spec(name, epoch) for name in "RS"]
        return self._compiled(epoch, self.statements(epoch), specs)

    def record(self, name: str) -> StreamRecord:
        """Return a stream's definition as registered now, maybe before its epoch's ruleset."""
        files = SourceRecord(format="files", path=str(self.home / "R"), rows_per_batch=4)
        step = len(self.since[name]) if self.wide_registered else 0
        return StreamRecord(
            name=name,
            columns=tuple(
                ColumnRecord(name=c, type=kind) for c, kind in self.kinds(name, step).items()
            ),
            widened=self._changed(name, step)["widened"],
            dropped=self._changed(name, step)["dropped"],
            source=files if name == "R" else SourceRecord(format="redis-stream"),
            retain=None,
        )

    def start(self) -> None:
        if self._published:
            self.driver.tables.close()
        super().start()

    def _account(self) -> None:
        super()._account()
        self.activations |= self.driver.state.queries

    # --- input ---------------------------------------------------------------------------------

    def _rows(self, name: str, count: int) -> list[dict[str, Any]]:
        """Return new rows of a stream; their values fit the types of the present epoch."""
        chance, rows, step = self.chance, list[dict[str, Any]](), self._present(name)
        great = [0, 1, 2, 5, None, *((40_000,) if name == "S" and step else ())]
        if step == len(self.since[name]):
            great += [3_000_000_000, 3_000_000_001]
        for _ in range(count):
            self.numbers += 1
            real = chance.choice((None, 0.1, 0.2, 0.25, 1e-3))
            row: dict[str, Any] = {"a": chance.randrange(4), "n": self.numbers}
            if name == "S":
                row |= {"w": chance.choice(great), "g": real, "y": chance.choice("abc")}
            else:
                digits = ("1.25", "3.50", "9999.99", *(("1234567890.12",) if step else ()))
                at = datetime(2024, 1, chance.randint(1, 3))  # noqa: DTZ001 - without a zone
                if step:
                    at += timedelta(hours=chance.choice((0, 7)))
                row |= {"v": chance.choice(great), "f": real, "t": at}
                row |= {"x": chance.choice((None, 0, 1, 2))}
                row |= {"d": Decimal(chance.choice(digits))}
            rows.append(row)
        return rows

    def add_file(self) -> None:
        """Add a file to ``R``, with the present types or, if the values fit, the first ones."""
        rows = self._rows("R", self.chance.randint(1, 9))
        step = self._present("R")
        if step and self.chance.random() < 0.5:
            step = 0
            for row in rows:
                row["v"] = row["v"] and min(row["v"], 5)
                row["d"] = min(row["d"], Decimal("9999.99"))
                row["t"] = row["t"].replace(hour=0)
        kinds = self.kinds("R", step) | {"x": "bigint"}
        if self.wide_registered and self.chance.random() < 0.7:
            del kinds["x"]
        for row in rows:
            row["x"] = row["x"] if "x" in kinds else None
            if not step:
                row["f"] = _single(row["f"])
            self.given["R"][row["n"]] = row
        names = list(kinds)
        self.chance.shuffle(names)
        shown = [row | ({} if step else {"t": row["t"].date()}) for row in rows]
        schema = pa.schema([(c, arrow_type(parse_type(kinds[c]))) for c in names])
        table = pa.Table.from_pylist(shown, schema)
        self._add_table(table)

    def send(self) -> None:
        """Append entries to ``S``."""
        for row in self._rows("S", self.chance.randint(0, 4)):
            if self.chance.random() < 0.3:
                row["y"] = None
            self.given["S"][row["n"]] = row
            text = json.dumps({c: value for c, value in row.items() if value is not None})
            self.server.xadd(KEYS.stream("S"), {"data": text})

    # --- the oracle ----------------------------------------------------------------------------

    def _seen(self, name: str) -> pa.Table:
        """Return the stream's rows with their batches, in the wide types."""
        began = dict(self.driver.state.epoch_starts)
        first = min(b for e, b in began.items() if self._step(name, e))
        rows = []
        for batch, (_, n) in self._by_batch(name.lower()):
            row = dict(self.given[name][n])
            column = "f" if name == "R" else "g"
            if batch < first:
                row[column] = _single(row[column])
            rows.append(row | {"batch": batch})
        last = {c: [kind for kind in kinds if kind][-1] for c, kinds in COLUMNS[name].items()}
        kinds = last | {"batch": "bigint"}
        assert sorted(row["n"] for row in rows) == sorted(self.given[name])
        schema = pa.schema([(c, arrow_type(parse_type(kind))) for c, kind in kinds.items()])
        return pa.Table.from_pylist(rows, schema)

    def verify(self) -> int:
        """Compare all results with DuckDB's; return the number of results of the queries that read
        wide types.
        """
        with duckdb.connect() as base:
            base.register("R", self._seen("R"))
            base.register("S", self._seen("S"))
            narrow = "* REPLACE (CAST(f AS FLOAT) AS f)"
            base.execute(f"CREATE TEMP VIEW narrow AS SELECT {narrow} FROM R")
            again = {f"{name}_again": text for name, text in ENDING.items()}
            total = 0
            for name, text in (QUERIES | ENDING | DROPPED | LATER | again).items():
                state = self.activations[name]
                assert state.activated_batch is not None
                newest = ", ".join(f"{a}.batch" for a in "RST" if f"{a}." in text)
                seen = f"greatest({newest}) >= {state.activated_batch}"
                if state.expired_batch is not None:
                    seen += f" AND greatest({newest}) < {state.expired_batch}"
                for ours, theirs in _IN_DUCKDB.items():
                    text = text.replace(ours, theirs)
                ends = name in ENDING | DROPPED
                if ends:
                    text = text.replace("FROM R ", "FROM narrow AS R ")
                wanted = f"{text} {'AND' if 'WHERE' in text else 'WHERE'} {seen}"
                expected = sorted(map(repr, base.execute(wanted).fetchall()))
                found = sorted(repr(row) for _, row in self._by_batch(name))
                assert found == expected, name
                assert (state.expired_batch is not None) == ends, name
                total += len(found) if name in LATER | again else 0
            assert not self.keeps or self._sums() == sorted(base.execute(SUMS).fetchall())
        return total

    def _sums(self) -> list[tuple[Any, ...]]:
        files = [str(path) for path in (self.home / "results" / "sums").glob("*.parquet")]
        numbered = "*, row_number() OVER (PARTITION BY a ORDER BY anabranch_version DESC) AS nth"
        text = (
            f"SELECT a, c, v, d FROM (SELECT {numbered} FROM read_parquet(?)) "
            "WHERE nth = 1 AND anabranch_change = 'upsert'"
        )
        with duckdb.connect() as base:
            return sorted(base.execute(text, [files]).fetchall())


def _single(value: float | None) -> float | None:
    """Return the nearest single-precision value."""
    return None if value is None else float(np.float32(value))

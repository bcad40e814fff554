"""A pipeline in this process whose streams get columns while it runs (:mod:`.fed`).

``R`` is a directory of Parquet files, ``S`` a Redis Stream of JSON; both are retained. From
a random epoch on ``R`` has ``x``, and from another one ``S`` has ``y`` and ``z``. Every epoch has a
random plan. The oracle knows all columns from the start, and from the queries ``r`` and ``s`` the
batch of every row: rows of batches before the column's epoch have its default.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.types import parse_type
from tests.support.cases.states import stream
from tests.support.worlds.fed import KEYS
from tests.support.worlds.fed_epochs import FedEpochs

#: Stream -> its columns in order (name, type); the first two exist from the beginning.
COLUMNS = {
    "R": (("a", "bigint"), ("n", "bigint"), ("x", "bigint")),
    "S": (("a", "bigint"), ("n", "bigint"), ("y", "string"), ("z", "bigint")),
}
#: Queries of the first epoch, whose rows and plans have no added column.
QUERIES = {
    "r": "SELECT R.a, R.n FROM R",
    "s": "SELECT S.a, S.n FROM S",
    "q": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.a = S.a",
}
#: Queries registered when both streams have all columns: as output, as filter, as key.
LATER = {
    "shown": "SELECT R.n AS r, S.n AS s, R.x, S.y FROM R JOIN S ON R.a = S.a",
    "filtered": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.a = S.a "
    "WHERE coalesce(R.x, 0) > 1 AND coalesce(S.y, 'none') <> 'b'",
    "keyed": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.x = S.z",
    "twice": "SELECT R.n AS r, S.n AS s, T.n AS t FROM R JOIN S ON R.x = S.z "
    "JOIN S AS T ON T.y = S.y AND T.a = R.a",
}


class AddedColumns(FedEpochs):
    """The pipeline, and all of its input: stream -> number of a row -> values by column."""

    names = "RS"

    def __init__(self, url: str, home: Path, seed: int) -> None:
        self.chance = chance = Random(f"added columns {seed}")
        self.given: dict[str, dict[int, dict[str, Any]]] = {"R": {}, "S": {}}
        self.since = {name: (chance.choice((2, 4, 6)),) for name in "RS"}
        self.defaults = {
            "x": chance.choice((None, "1", "2")),
            "y": chance.choice((None, "b", "c", "")),
            "z": chance.choice((None, "1", "3")),
        }
        self.numbers, self.all_registered, self._published = 0, False, False
        self.home = home
        super().__init__(url, home)

    # --- definitions ---------------------------------------------------------------------------

    def spec(self, name: str, epoch: int) -> Stream:
        """Return a stream as in the ruleset of an epoch."""
        first = stream(name, "a", "n", timed=False)
        if not self._step(name, epoch):
            return replace(first, retain=None)
        more = COLUMNS[name][2:]
        columns = (*first.columns, *((c, parse_type(kind)) for c, kind in more))
        added = tuple((c, self.defaults[c]) for c, _ in more)
        return replace(first, columns=columns, added=added, retain=None)

    def _rules(self, epoch: int) -> Ruleset:
        specs = [self.spec(name, epoch) for name in "RS"]
        both = all(self._step(name, epoch) for name in "RS")
        return self._compiled(epoch, QUERIES | (LATER if both else {}), specs)

    def record(self, name: str) -> StreamRecord:
        """Return a stream as registered now, which may precede or follow the rules of its epoch."""
        files = SourceRecord(format="files", path=str(self.home / "R"), rows_per_batch=4)
        there = COLUMNS[name][: None if self.all_registered else 2]
        return StreamRecord(
            name=name,
            columns=tuple(ColumnRecord(name=c, type=kind) for c, kind in there),
            added=tuple((c, self.defaults[c]) for c, _ in there[2:]),
            source=files if name == "R" else SourceRecord(format="redis-stream"),
            retain=None,
        )

    # --- input ---------------------------------------------------------------------------------

    def _rows(self, name: str, count: int) -> list[dict[str, Any]]:
        """Draw new rows of a stream, some without the added columns."""
        chance, rows = self.chance, list[dict[str, Any]]()
        values = {"x": (None, 1, 2, 3), "y": (None, "", "b", "c"), "z": (None, 1, 2, 3)}
        for _ in range(count):
            self.numbers += 1
            row: dict[str, Any] = {"a": chance.randrange(4), "n": self.numbers}
            row |= {c: chance.choice(values[c]) for c, _ in COLUMNS[name][2:]}
            rows.append(row)
        return rows

    def add_file(self) -> None:
        """Write a file for ``R``, which may lack ``x``."""
        rows = self._rows("R", self.chance.randint(1, 9))
        names = ["x", "n", "a"] if self.chance.random() < 0.6 else ["a", "n"]
        for row in rows:
            self.given["R"][row["n"]] = {"x": None} | {c: row[c] for c in names}
        kinds = pa.schema([(c, pa.int64()) for c in names])
        table = pa.table({c: [row[c] for row in rows] for c in names}, kinds)
        self._add_table(table)

    def send(self) -> None:
        """Add entries for ``S``, in which fields may be missing."""
        for row in self._rows("S", self.chance.randint(0, 4)):
            given = {c: v for c, v in row.items() if c in "an" or self.chance.random() < 0.7}
            self.given["S"][row["n"]] = {"y": None, "z": None} | given
            self.server.xadd(KEYS.stream("S"), {"data": json.dumps(given)})

    # --- the oracle ----------------------------------------------------------------------------

    def _seen(self, name: str) -> pa.Table:
        """Return the stream's rows with their batches, as later queries must see them."""
        began = dict(self.driver.state.epoch_starts)
        # An epoch without a ruleset continues with the one before.
        first = min(b for e, b in began.items() if self._step(name, e))
        rows = []
        for batch, (_, n) in self._by_batch(name.lower()):
            row = dict(self.given[name][n])
            if batch < first:
                row |= {
                    c: given if given is None or c == "y" else int(given)
                    for c, given in self.defaults.items()
                    if c in row
                }
            rows.append(row | {"batch": batch})
        types = {"string": pa.string(), "bigint": pa.int64()}
        fields = [(c, types[kind]) for c, kind in (*COLUMNS[name], ("batch", "bigint"))]
        assert sorted(row["n"] for row in rows) == sorted(self.given[name])
        return pa.Table.from_pylist(rows, pa.schema(fields))

    def verify(self) -> int:
        """Compare all results with DuckDB's over the rows as queries must see them; return the
        number of results of the later queries.
        """
        with duckdb.connect() as base:
            base.register("R", self._seen("R"))
            base.register("S", self._seen("S"))
            total = 0
            for name, text in (QUERIES | LATER).items():
                state = self.driver.state.queries[name]
                assert state.activated_batch is not None
                aliases = [a for a in ("R", "S", "T") if f"{a}." in text]
                newest = ", ".join(f"{a}.batch" for a in aliases)
                arrived = f"greatest({newest}) >= {state.activated_batch}"
                wanted = f"{text} {'AND' if 'WHERE' in text else 'WHERE'} {arrived}"
                expected = sorted(map(repr, base.execute(wanted).fetchall()))
                found = sorted(repr(row) for _, row in self._by_batch(name))
                assert found == expected, name
                total += len(found) if name in LATER else 0
        return total

"""A pipeline over a table that is read again from its files repeatedly, in this process
(:mod:`.fed`).

``R`` is the table, a directory of Parquet files; ``S`` and ``U`` are Redis Streams. Every epoch has
a random plan. The oracle knows the rows of each version, and that each batch has looked up one.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.joins import Stream, StreamKind
from tests.support.cases.states import stream
from tests.support.worlds.fed import KEYS
from tests.support.worlds.fed_epochs import FedEpochs

#: Row: ``a``, ``b`` and the row's number.
Row = tuple[int, int, int]
COLUMNS = {"R": ("a", "b", "n"), "S": ("a", "n"), "U": ("b", "n")}
WITH_S = "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.a = S.a"
QUERIES = {
    "q": WITH_S,
    "w": "SELECT R.n AS r, S.n AS s, U.n AS u FROM R JOIN S ON R.a = S.a JOIN U ON U.b = R.b",
    "f": f"{WITH_S} WHERE R.b > 1",
    "s": "SELECT S.a, S.n FROM S",
    "u": "SELECT U.b, U.n FROM U",
}
#: Epochs that have a plan of their own: every other one.


class Rereads(FedEpochs):
    """The pipeline over a reread table, and the rows of each version and each batch."""

    names = tuple(COLUMNS)

    def __init__(self, url: str, home: Path, seed: int, *, unread: bool = False) -> None:
        self.chance = Random(f"rereads {seed}")
        self.key = self.chance.choice(((), ("a",)))
        self.without_readers = unread
        self.version, self.numbers = 1, 0
        #: Version of the table -> rows of each file, in order.
        self.written: dict[int, list[list[Row]]] = {1: []}
        #: Batch -> rows of each version of the table when it ran.
        self.at: dict[int, dict[int, list[Row]]] = {}
        self.home = home
        super().__init__(url, home)

    @property
    def specs(self) -> list[Stream]:
        table = stream("R", *COLUMNS["R"], timed=False)
        return [
            replace(table, kind=StreamKind.TABLE, retain=None, latest=self.key),
            *(stream(name, *COLUMNS[name], timed=False) for name in "SU"),
        ]

    def _rules(self, epoch: int) -> Ruleset:
        wanted = ("s", "u") if self.without_readers and epoch < 6 else QUERIES
        return self._compiled(epoch, {name: QUERIES[name] for name in wanted}, self.specs)

    def record(self, name: str) -> StreamRecord:
        """Return a stream's definition as registered now."""
        files = SourceRecord(format="files", path=str(self.home / "R"), rows_per_batch=4)
        return StreamRecord(
            name=name,
            columns=tuple(ColumnRecord(name=c, type="bigint") for c in COLUMNS[name]),
            source=files if name == "R" else SourceRecord(format="redis-stream"),
            retain=None if name == "R" else 0,
            kind=StreamKind.TABLE if name == "R" else StreamKind.STREAM,
            version=self.version if name == "R" else 1,
        )

    def turn(self) -> bool:
        self.at[self.driver.state.next_batch] = {v: self.rows_of(v) for v in self.written}
        return super().turn()

    # --- input ---------------------------------------------------------------------------------

    def rows_of(self, version: int) -> list[Row]:
        """Return the rows of a version that later versions do not supersede."""
        rows = [row for file in self.written[version] for row in file]
        return list({(a if self.key else n): (a, b, n) for a, b, n in rows}.values())

    def add_file(self) -> None:
        """Add a file to the present version."""
        rows = []
        for _ in range(self.chance.randint(1, 9)):
            self.numbers += 1
            rows.append((self.chance.randrange(4), self.chance.randrange(4), self.numbers))
        self.written[self.version].append(rows)
        columns = {c: [row[i] for row in rows] for i, c in enumerate(COLUMNS["R"])}
        self._add_table(pa.table(columns))

    def reread(self, files: int) -> None:
        """Have the table read again; files of the previous version are removed, unless a batch that
        was begun may need them.
        """
        self.version += 1
        self.written[self.version] = []
        if self._is_begun():
            self.written[self.version] = list(self.written[self.version - 1])
        else:
            for path in (self.home / "R").glob("*.parquet"):
                path.unlink()
        for _ in range(files):
            self.add_file()

    def _is_begun(self) -> bool:
        return self.driver.durability.choices.get(self.driver.state.next_batch) is not None

    def send(self) -> None:
        """Send tuples of the streams ``S`` and ``U``."""
        for name in ("S", "U"):
            for _ in range(self.chance.randint(0, 3)):
                self.numbers += 1
                row = {COLUMNS[name][0]: self.chance.randrange(4), "n": self.numbers}
                self.server.xadd(KEYS.stream(name), {"data": json.dumps(row)})

    # --- the oracle ----------------------------------------------------------------------------

    def by_batch(self, query: str) -> dict[int, list[tuple[int, ...]]]:
        """Return a query's results by batch."""
        found: dict[int, list[tuple[int, ...]]] = {}
        for path in sorted((self.home / "results" / query).glob("*.parquet")):
            batch = int(path.name.split(".")[0].split("-")[0])
            found.setdefault(batch, []).extend(duckdb.read_parquet(str(path)).fetchall())
        return {batch: sorted(rows) for batch, rows in found.items()}

    def verify(self, last: int) -> None:
        """Verify that each batch has looked up exactly one version, none older than the batch
        before, and the last batch the version ``last``.
        """
        given = {name: self.by_batch(name) for name in QUERIES}
        s_of, u_of = given["s"], given["u"]
        oldest, fits = 1, list[int]()
        past: dict[str, list[tuple[int, ...]]] = {"S": [], "U": []}
        began = self.driver.state.queries["q"].activated_batch
        visible = self.driver.state.queries["w"].visible_from
        for batch in range(self.driver.state.next_batch):
            s, u = s_of.get(batch, []), u_of.get(batch, [])
            found = {q: given[q].get(batch, []) for q in ("q", "w", "f")}
            fits = []
            for version, rows in self.at[batch].items():
                pairs: dict[str, list[tuple[int, ...]]] = {}
                pairs["q"] = [(n, k) for a, _, n in rows for c, k in s if a == c]
                pairs["f"] = [(n, k) for a, b, n in rows if b > 1 for c, k in s if a == c]
                pairs["w"] = [
                    (n, k, m)
                    for a, b, n in rows
                    for c, k in (*past["S"], *s)
                    for d, m in (*past["U"], *u)
                    if a == c and b == d and ((c, k) in s or (d, m) in u)
                ]
                if all(sorted(pairs[q]) == found[q] for q in found):
                    fits.append(version)
            for name, rows_now in (("S", s), ("U", u)):
                past[name] += rows_now if batch >= visible[name].batch else []
            if batch < began:
                assert not any(found.values())
                continue
            fits = [version for version in fits if version >= oldest]
            assert fits, (batch, oldest, found, self.at[batch])
            oldest = fits[0]
        assert last in fits, (last, fits)

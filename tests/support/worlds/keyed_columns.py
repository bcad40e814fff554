"""A pipeline in this process whose tables and streams of changes get other columns (:mod:`.fed`).

``U`` has upserts, ``C`` inserts and deletes, both in Redis Streams of JSON; ``T`` is a table in
Parquet files, which ``S``, a Redis Stream, looks up. From random epochs on, columns (also of keys)
are added, widened or dropped. Every epoch has a random plan. The oracle is the batch query over the
current rows: rows of batches before the epoch of an added column have its default.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import StreamKind
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from tests.support.worlds.fed import KEYS
from tests.support.worlds.fed_epochs import FedEpochs

#: Stream -> column -> its types in order; empty: the column does not exist yet, or was dropped.
COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "U": {
        "id": ("int", "bigint", "bigint"),
        "a": ("bigint",) * 3,
        "n": ("bigint",) * 3,
        "y": ("string", "", ""),
        "v": ("int", "bigint", "bigint"),
        "x": ("", "int", "bigint"),
        "z": ("", "", "string"),
    },
    "C": {
        "a": ("bigint", "bigint"),
        "n": ("bigint", "bigint"),
        "v": ("int", "bigint"),
        "x": ("", "int"),
    },
    "T": {"id": ("int", "bigint"), "n": ("bigint", "bigint"), "x": ("", "int")},
    "S": {"a": ("bigint",), "n": ("bigint",)},
}
KINDS: dict[str, dict[str, Any]] = {
    "U": {"kind": StreamKind.UPSERT, "changes": ChangeFormat(key=("id",))},
    "C": {"kind": StreamKind.CHANGES, "changes": ChangeFormat()},
    "T": {"kind": StreamKind.TABLE, "latest": ("id",)},
    "S": {"kind": StreamKind.STREAM},
}
#: Queries from the first epoch on.
QUERIES = {
    "u": "SELECT U.n FROM U",
    "c": "SELECT C.n FROM C",
    "t": "SELECT T.n FROM T",
    "s": "SELECT S.n FROM S",
    "uc": "SELECT CAST(U.id AS BIGINT) AS id, U.n AS u, C.n AS c, CAST(C.v AS BIGINT) AS v "
    "FROM U JOIN C ON U.a = C.a WHERE U.v > 0",
    "ut": "SELECT U.n AS u, T.n AS t FROM U JOIN T ON U.a = T.id",
    "vv": "SELECT U.n AS u, C.n AS c, T.n AS t FROM U JOIN C ON U.v = C.v JOIN T ON T.id = U.id",
}
#: Queries that end with the first change of ``U``, whose dropped column they read.
ENDING = {"gone": "SELECT U.n AS u, C.n AS c FROM U JOIN C ON U.a = C.a WHERE U.y <> 'b'"}
#: Queries registered when all streams have their last columns.
LATER = {
    "shown": "SELECT U.id, U.n AS u, U.v, U.x, U.z, C.x AS w, C.n AS c FROM U JOIN C ON U.a = C.a",
    "filtered": "SELECT U.n AS u, C.n AS c FROM U JOIN C ON U.a = C.a "
    "WHERE coalesce(U.x, 0) > 1 AND coalesce(U.z, 'none') <> 'b' AND C.x IS NULL",
    "keyed": "SELECT U.n AS u, T.n AS t, C.n AS c FROM U JOIN T ON U.x = T.x JOIN C ON C.x = U.x",
}
#: Look-ups registered with them, whose results are final.
LOOK_UPS = {"looked": "SELECT S.n AS s, T.n AS t, T.x FROM S JOIN T ON S.a = T.id"}
DEFAULTS = {"x": (None, "1", "2"), "z": (None, "b", "")}


class KeyedColumns(FedEpochs):
    """The pipeline, and all of its input: stream -> number of a row -> values by column.

    Attributes:
        wide_registered: whether the streams are registered with their last columns.
    """

    names = "UCTS"
    epochs = range(0, 14, 2)

    def __init__(self, url: str, home: Path, seed: int) -> None:
        self.chance = chance = Random(f"keyed columns {seed}")
        self.given: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in COLUMNS}
        #: Keys of ``U`` whose last row is a tombstone, and numbers of deleted rows of ``C``.
        self.deleted: set[int] = set()
        self.since = {"U": (chance.choice((2, 4)), 6), "C": (chance.choice((2, 4, 6)),)}
        self.since |= {"T": (chance.choice((2, 4, 6)),), "S": ()}
        self.defaults = {
            (name, column): None if name == "C" else chance.choice(DEFAULTS[column])
            for name, kinds in COLUMNS.items()
            for column in kinds
            if column in DEFAULTS
        }
        self.numbers, self.wide_registered, self._published = 0, False, False
        self.home = home
        super().__init__(url, home)

    # --- definitions ---------------------------------------------------------------------------

    def kinds(self, name: str, step: int) -> dict[str, str]:
        """Return column -> its type after ``step`` changes of the stream's columns."""
        return {c: kinds[step] for c, kinds in COLUMNS[name].items() if kinds[step]}

    def record(self, name: str) -> StreamRecord:
        """Return a stream as registered now, which may precede or follow the rules of its epoch."""
        return self._defined(name, len(self.since[name]) if self.wide_registered else 0)

    def _defined(self, name: str, step: int) -> StreamRecord:
        first, now = self.kinds(name, 0), self.kinds(name, step)
        began = {c: next(filter(None, kinds)) for c, kinds in COLUMNS[name].items()}
        operation = {"op": "string"} if "changes" in KINDS[name] else {}
        there = {c: kind for c, kind in now.items() if c in first} | operation
        there |= {c: kind for c, kind in now.items() if c not in first}
        files = SourceRecord(format="files", path=str(self.home / "R"), rows_per_batch=4)
        given: dict[str, Any] = {
            "added": tuple((c, self.defaults[name, c]) for c in now if c not in first),
            "widened": tuple((c, began[c]) for c, kind in now.items() if kind != began[c]),
            "dropped": tuple((c, kind) for c, kind in first.items() if c not in now),
            **KINDS[name],
        }
        return StreamRecord(
            name=name,
            columns=tuple(ColumnRecord(name=c, type=kind) for c, kind in there.items()),
            source=files if name == "T" else SourceRecord(format="redis-stream"),
            retain=None,
            **given,
        )

    def statements(self, epoch: int) -> dict[str, str]:
        """Return the queries of an epoch."""
        found = dict(QUERIES)
        if not self._step("U", epoch):
            found |= ENDING
        if all(self._step(name, epoch) == len(self.since[name]) for name in COLUMNS):
            found |= LATER | LOOK_UPS
        return found

    def _rules(self, epoch: int) -> Ruleset:
        specs = [self._defined(name, self._step(name, epoch)).to_stream() for name in COLUMNS]
        texts = self.statements(epoch)
        return self._compiled(epoch, texts, specs, texts.keys() - {"s", *LOOK_UPS})

    # --- input ---------------------------------------------------------------------------------

    def _row(self, name: str) -> dict[str, Any]:
        """Draw a row of a stream, whose values fit the types of the present epoch."""
        chance, kinds = self.chance, self.kinds(name, self._present(name))
        self.numbers += 1
        great = (3_000_000_000,) if kinds.get("v", kinds.get("id")) == "bigint" else ()
        values: dict[str, tuple[Any, ...]] = {
            "id": (*range(6), *great),
            "a": tuple(range(4)),
            "y": (None, "a", "b"),
            "v": (None, 0, 1, 2, *great),
            "x": (None, 1, 2, 3),
            "z": (None, "", "b", "c"),
        }
        row = {c: chance.choice(values[c]) if c in values else self.numbers for c in COLUMNS[name]}
        if name == "C" and "x" not in kinds:
            # A delete repeats its row as it was read, which had no ``x``.
            row["x"] = None
        self.given[name][row["n"]] = row
        return row

    def add_file(self) -> None:
        """Write a file for ``T``, with the present types or the first ones; it may lack ``x``."""
        rows = [self._row("T") for _ in range(self.chance.randint(1, 6))]
        kinds = self.kinds("T", self._present("T"))
        if self.chance.random() < 0.5:
            kinds["x"] = "int"
        else:
            kinds.pop("x", None)
            for row in rows:
                row["x"] = None
        schema = pa.schema([(c, arrow_type(parse_type(kind))) for c, kind in kinds.items()])
        table = pa.Table.from_pylist(rows, schema)
        self._add_table(table)

    def send(self) -> None:
        """Add entries for the other streams, in which fields may be missing."""
        chance = self.chance
        for _ in range(chance.randint(0, 5)):
            row = self._row("U")
            if chance.random() < 0.25:
                self.deleted.add(row["n"])
                self._push("U", {"id": row["id"], "n": row["n"], "op": "d"})
                continue
            for column in ("x", "z"):
                if chance.random() < 0.3:
                    row[column] = None
            self._push("U", row | {"op": chance.choice("iu")})
        for _ in range(chance.randint(0, 3)):
            there = [n for n in self.given["C"] if n not in self.deleted]
            if there and chance.random() < 0.4:
                gone = chance.choice(there)
                self.deleted.add(gone)
                self._push("C", self.given["C"][gone] | {"op": "d"})
            else:
                self._push("C", self._row("C") | {"op": "i"})
        if chance.random() < 0.7:
            self._push("S", self._row("S"))

    def _push(self, name: str, row: dict[str, Any]) -> None:
        text = json.dumps({c: value for c, value in row.items() if value is not None})
        self.server.xadd(KEYS.stream(name), {"data": text})

    # --- the oracle ----------------------------------------------------------------------------

    def _inserted(self, name: str) -> dict[int, int]:
        """Return number -> batch of the rows of a stream that have been results."""
        found = dict[int, int]()
        for batch, (n, *change) in self._by_batch(name.lower()):
            if change in ([], ["insert"]):
                found.setdefault(n, batch)
        return found

    def _as_read(self, name: str) -> dict[int, dict[str, Any]]:
        """Number -> row and batch of all rows that have been results, as later queries see them."""
        began = dict(self.driver.state.epoch_starts)
        first = self.kinds(name, 0)
        since = {
            column: min(b for e, b in began.items() if self._step(name, e) >= kinds.index(kind))
            for column, kinds in COLUMNS[name].items()
            if column not in first and (kind := next(filter(None, kinds)))
        }
        found = dict[int, dict[str, Any]]()
        for n, batch in self._inserted(name).items():
            row = found[n] = self.given[name][n] | {"batch": batch}
            for column, start in since.items():
                if batch < start:
                    given = self.defaults[name, column]
                    row[column] = int(given) if given and column == "x" else given
        return found

    def _current(self, name: str) -> list[dict[str, Any]]:
        """Return the current rows of a stream."""
        rows, last = self._as_read(name), dict[Any, int]()
        for n, row in self.given[name].items():
            last[row.get("id", n)] = n
        return [rows[n] for n in last.values() if n not in self.deleted]

    def _table(self, name: str, rows: list[dict[str, Any]]) -> pa.Table:
        kinds = {c: next(filter(None, reversed(kinds))) for c, kinds in COLUMNS[name].items()}
        schema = [(c, arrow_type(parse_type(k))) for c, k in (kinds | {"batch": "bigint"}).items()]
        return pa.Table.from_pylist(rows, pa.schema(schema))

    def verify(self) -> int:
        """Compare the sums of all changes with DuckDB's results over the current rows, and look-ups
        with the table's rows as of their batches; return the number of changes of later queries.
        """
        state = self.driver.state.queries
        total = 0
        with duckdb.connect() as base:
            for name in "UCT":
                base.register(name, self._table(name, self._current(name)))
            for name, text in (QUERIES | LATER).items():
                if name == "s":
                    continue
                found = Counter[tuple[Any, ...]]()
                for _, (*row, change) in self._by_batch(name):
                    found[tuple(row)] += 1 if change == "insert" else -1
                    total += name in LATER
                wanted = Counter(base.execute(text).fetchall())
                assert {r: n for r, n in found.items() if n} == wanted, name
            base.register("S", self._table("S", list(self._as_read("S").values())))
            base.register("history", self._table("T", list(self._as_read("T").values())))
            activated = state["looked"].activated_batch
            looked = f"""
                SELECT S.n, T.n, T.x FROM S ASOF JOIN history T
                    ON S.a = T.id AND S.batch >= T.batch WHERE S.batch >= {activated}
            """
            expected = sorted(map(repr, base.execute(looked).fetchall()))
            assert sorted(repr(row) for _, row in self._by_batch("looked")) == expected
        return total

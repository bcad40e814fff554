"""Statements of pages of docs/ over the streams of the examples, in one pipeline, compared with
DuckDB.

Registration over REST, planner, driver and worker are the product's; files are read as in a live
pipeline, in several batches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_runtime.sources.loads import loads_upto
from examples.example import NAMES, SLICES, Example, connect, named
from tests.support.documents.pages import ROOT, slug
from tests.support.worlds.derived import Derived
from tests.support.worlds.service import eventually
from tests.support.worlds.view_runs import comparable

_HEADING = re.compile(r"^#{2,3} (.*)$")


def statements(page: str, before: str = "") -> dict[str, str]:
    """Return anchor of a heading of docs/``page`` → the SQL block below it.

    Args:
        before: line before a block that counts; empty: all blocks count.
    """
    found: dict[str, str] = {}
    anchor = last = ""
    block: list[str] | None = None
    for line in (ROOT / "docs" / page).read_text("utf-8").splitlines():
        if block is not None:
            if line == "```":
                assert anchor not in found, f"{page}: two statements below {anchor}"
                found[anchor], block = "\n".join(block), None
            else:
                block.append(line)
        elif line == "```sql" and last == (before or last):
            block = []
        elif heading := _HEADING.match(line):
            anchor = slug(heading[1])
        last = line or last
    return found


def in_duckdb(page: str) -> dict[str, str]:
    """Return DuckDB's SQL for statements of a page that differ there, by anchor."""
    return named(Path(__file__).parent / f"{page}.duckdb.sql")


@dataclass
class ExampleStreams(Derived):
    """The streams of all examples, with their statements."""

    examples: list[Example] = field(init=False)

    def __post_init__(self) -> None:
        self.examples = [Example.read(name) for name in NAMES]
        for example in self.examples:
            for body in example.bodies(self.folder / "in"):
                Path(body["source"]["path"]).mkdir(parents=True)
                self.service.post("/v1/streams?wait=0", body)
        self.start()

    def feed(self) -> None:
        """Write all rows, in several batches, when all queries are active; run until nothing
        changes.
        """
        for example in self.examples:
            example.write_tables(self.folder / "in")
        eventually(self._active, "all queries are active")
        for part in range(SLICES):
            for example in self.examples:
                example.write(self.folder / "in", part)
            self.turn()
        eventually(self._read, "all loads have ended")

    def _read(self) -> bool:
        """Settle; whether no file may follow: a load ends, and moves the watermark, when later
        looks find no more files, for longer where a busy machine has paused between them.
        """
        self.settle()
        loads = loads_upto(self.driver.state.offsets)
        return bool(loads) and not any(load.is_open for load in loads.values())

    def _active(self) -> bool:
        self.turn()
        listed = self.service.get("/v1/queries?limit=1000")["items"]
        return all(query["status"] == "active" for query in listed)

    def compare(self, oracle: Mapping[str, str]) -> dict[str, int]:
        """Return query → its rows, after comparing them with DuckDB's.

        Args:
            oracle: DuckDB's words for the statements of queries that differ there.

        Raises:
            AssertionError: an answer is not DuckDB's.
        """
        found = {}
        with connect() as duck:
            for example in self.examples:
                example.fill(duck)
            for name, sql in self.statements.items():
                wanted = comparable(duck.execute(oracle.get(name, sql)).fetchall())
                rows = self.rows(name)
                odd = set(rows) ^ set(wanted)
                assert rows == wanted, f"{name}\n{sql}\n{len(rows)}, {len(wanted)}: {list(odd)[:9]}"
                found[name] = len(rows)
        return found

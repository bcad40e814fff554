"""Run the statements of a file as continuous queries in one pipeline, compared with DuckDB."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_planner.sql.dialects import to_spark
from tests.sql.domains.streams import declared
from tests.sql.files import Block, shown
from tests.support.combined.grammar import Statement, Text
from tests.support.combined.pipeline import Combined
from tests.support.combined.streams import MINUTE, NEVER, Kind, RandomStream, Row
from tests.support.worlds.view_runs import comparable

_KINDS = {
    "a": Kind.CHANGES,
    "b": Kind.CHANGES,
    "c": Kind.INSERTS,
    "h": Kind.INSERTS,
    "d": Kind.INSERTS,
    "f": Kind.INSERTS,
    "p": Kind.TABLE,
    "l": Kind.LATEST,
}
#: Batches in each of the two parts of a run, after which results are compared.
_BATCHES = 5


class Followed(RandomStream):
    """Stream with statements that all read only its current rows (a table)."""

    def net(self, batch: int) -> list[tuple[Row, int, int]] | None:
        """Return the current rows after ``batch``."""
        rows = super().net(batch)
        return rows and [row for row in rows if row[2] == NEVER]


def few_rows(folder: Path, rng: Random) -> dict[str, RandomStream]:
    """Return the fixed streams with few rows, since people read the results."""
    found = {}
    for name, kind in _KINDS.items():
        home = folder / name
        home.mkdir(parents=True)
        key = int(kind in (Kind.TABLE, Kind.LATEST))
        late = 30 * MINUTE if name == "l" else None
        make = Followed if kind is Kind.TABLE else RandomStream
        found[name] = make(name, kind, home, late, key=key, sizes=(1, 2, 5))
    return found


class Written(Combined):
    """A run with given statements, all registered before the first row, over streams that they
    declare or the fixed ones.

    Attributes:
        rows: query -> its final rows, which are DuckDB's.
    """

    def __init__(self, folder: Path, redis: str, seed: int, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        own = any(block.kind == "stream" for block in blocks)
        super().__init__(folder, redis, seed, drawn=declared(blocks) if own else few_rows)

    def refusal(self, block: Block) -> list[str]:
        """Return lines of the refusal of a statement; none if it is accepted."""
        try:
            self.registry.register("refused", self._translated(block), past=False)
        except PlannerError as error:
            return [f"{error.code}: {error.message}", f"remedy: {error.remedy}"]
        self.registry.drop("refused")
        return []

    def _translated(self, block: Block) -> str:
        """The statement in Spark's dialect."""
        if not block.dialect:
            return block.filled
        return to_spark(block.filled, block.dialect, self.registry.usable)

    def _play(self) -> None:
        rng = self.rng
        for number, block in enumerate(self.blocks):
            if block.kind == "query":
                text = Text(block.sql, block.duckdb)
                name = block.name or f"q{number}"
                self.statements[name] = Statement(text, (), frozenset(), False, {})
                self.registered[name] = sql = self._translated(block)
                self.registry.register(name, sql, past=False)
        self._changed = True
        self._start()
        for _ in range(2):
            for _ in range(_BATCHES):
                for stream in self.streams.values():
                    stream.write(rng, self._minutes)
                self._minutes += rng.choice((0, 5, 20))
                self.turn()
            for stream in self.streams.values():
                stream.finish()
            self.settle()
            self.check()
        for name in self.registered:
            found = self._duck.execute(f"SELECT * FROM {name}").fetchall()
            self.rows[name] = comparable(found)
        self.driver.tables.close()

    def answers(self) -> list[Block]:
        """Return the blocks with their results; only after :meth:`play`."""
        found = []
        for number, block in enumerate(self.blocks):
            if block.kind == "query":
                found.append(block.answered(shown(self.rows[block.name or f"q{number}"])))
            elif block.kind == "refused":
                found.append(block.answered(self.refusal(block)))
            else:
                found.append(block)
        return found

"""Statements with their answers as text, in the manner of sqllogictest.

A file has blocks with empty lines between them. ``query`` begins a statement, whose rows follow
after ``----``, sorted; ``duckdb`` in between gives DuckDB's words for it where they differ;
``refused`` begins a statement whose refusal follows. ``python -m tests.sql`` fills the answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
_ANSWER = "----"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a file.

    Attributes:
        kind: ``query``, ``refused``, or empty: a comment, whose lines are ``answer``.
        sql: the statement. ``duckdb``: in DuckDB's words.
        answer: lines of its rows, or of its refusal.
    """

    kind: str
    sql: str = ""
    duckdb: str = ""
    answer: tuple[str, ...] = ()

    def text(self) -> str:
        """The block as it stands in a file."""
        if not self.kind:
            return "\n".join(self.answer)
        other = ["duckdb", self.duckdb] if self.duckdb != self.sql else []
        return "\n".join([self.kind, self.sql, *other, _ANSWER, *self.answer])

    def answered(self, lines: Sequence[str]) -> Block:
        """The block with other lines of its answer."""
        return replace(self, answer=tuple(lines))


def files() -> list[Path]:
    """The files, by name."""
    return sorted(FOLDER.glob("*.slt"))


def read(path: Path) -> list[Block]:
    """The blocks of a file.

    Raises:
        ValueError: a block is of no kind.
    """
    return list(_blocks(path.read_text(encoding="utf-8")))


def _blocks(text: str) -> Iterator[Block]:
    for part in text.strip().split("\n\n"):
        head, *lines = part.strip().split("\n")
        if head.startswith("#"):
            yield Block("", answer=(head, *lines))
            continue
        if head not in ("query", "refused"):
            raise ValueError(f"{head!r} begins no block: write query, refused or #")
        at = lines.index(_ANSWER) if _ANSWER in lines else len(lines)
        said, answer = lines[:at], tuple(lines[at + 1 :])
        turn = said.index("duckdb") if "duckdb" in said else len(said)
        sql = "\n".join(said[:turn])
        yield Block(head, sql, "\n".join(said[turn + 1 :]) or sql, answer)


def write(path: Path, blocks: Sequence[Block]) -> None:
    """Write a file."""
    path.write_text("\n\n".join(block.text() for block in blocks) + "\n", encoding="utf-8")


def shown(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Rows as lines, sorted."""
    return sorted(" ".join(map(_value, row)) for row in rows)


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{','.join(map(_value, value))}]"
    return str(value) if value != "" else "(empty)"

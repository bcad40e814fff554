"""Text files of SQL statements with their results, in the manner of sqllogictest.

A file has blocks with empty lines between them. ``query`` begins a statement, whose rows follow
after ``----``, sorted; ``parameters {…}`` in between gives values of its parameters as JSON, and
``duckdb`` DuckDB's words for it where they differ;
``dialect NAME`` before it names the dialect of the statement;
``query NAME`` registers it under a name, for queries over it. ``stream NAME KIND`` begins the
columns of a stream, a line each: name, type and values as JSON. ``refused`` begins a statement
whose refusal follows. ``row`` begins a row of the table of statements in docs/sql.md: the supported
cell, then the refused one; the statements up to the next row are its examples. ``python -m
tests.sql`` fills the answers, ``python -m scripts.reference`` makes the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch_service.registry.sizes import filled

FOLDER = Path(__file__).parent
#: Folder of files with common statements of some domains, over streams that they declare.
DOMAINS = FOLDER / "domains"
_ANSWER = "----"
_PARAMETERS = "parameters "
_DIALECT = "dialect "
#: Files with statements in other dialects.
DIALECTS = FOLDER / "dialects"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a file.

    Attributes:
        kind: ``query``, ``refused``, ``row``, ``stream``, or empty: a comment, whose lines are
            ``answer``.
        sql: the statement; of a row, the supported cell. ``duckdb``: in DuckDB's words.
        answer: lines of its rows, or of its refusal; of a row, the refused cell.
        name: id of the query, if others read it; of a stream, also its kind.
        parameters: JSON of the values of the statement's parameters; empty: it has none.
        dialect: of the statement; empty: Spark's.
    """

    kind: str
    sql: str = ""
    duckdb: str = ""
    answer: tuple[str, ...] = ()
    name: str = ""
    parameters: str = ""
    dialect: str = ""

    @property
    def filled(self) -> str:
        """Return the statement with the values of its parameters."""
        return filled(self.sql, json.loads(self.parameters), "") if self.parameters else self.sql

    def text(self) -> str:
        """Return the block's text in a file."""
        if not self.kind:
            return "\n".join(self.answer)
        head = f"{self.kind} {self.name}".rstrip()
        other = ["duckdb", self.duckdb] if self.duckdb != self.sql else []
        given = [_PARAMETERS + self.parameters] if self.parameters else []
        given += [_DIALECT + self.dialect] if self.dialect else []
        sql = [self.sql] if self.sql else []
        answer = [] if self.kind == "stream" else [_ANSWER, *self.answer]
        return "\n".join([head, *sql, *given, *other, *answer])

    def answered(self, lines: Sequence[str]) -> Block:
        """Return the block with other lines as its answer."""
        return replace(self, answer=tuple(lines))


def files(folder: Path = FOLDER) -> list[Path]:
    """Return the statement files of ``folder``, by name."""
    return sorted(folder.glob("*.slt"))


def read(path: Path) -> list[Block]:
    """Return the blocks of a file.

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
        kind, _, name = head.partition(" ")
        if kind not in ("query", "refused", "row", "stream") or (
            name and kind not in ("query", "stream")
        ):
            raise ValueError(f"{head!r} begins no block: write query, refused, row, stream or #")
        at = lines.index(_ANSWER) if _ANSWER in lines else len(lines)
        said, answer = lines[:at], tuple(lines[at + 1 :])
        turn = said.index("duckdb") if "duckdb" in said else len(said)
        dialect, first = _last(said[:turn], _DIALECT)
        given, first = _last(first, _PARAMETERS)
        sql = "\n".join(first)
        yield Block(kind, sql, "\n".join(said[turn + 1 :]) or sql, answer, name, given, dialect)


def _last(lines: list[str], word: str) -> tuple[str, list[str]]:
    """The text after ``word`` in the last line, and the lines before; nothing, and all lines."""
    if lines and lines[-1].startswith(word):
        return lines[-1].removeprefix(word), lines[:-1]
    return "", lines


def examples(path: Path) -> list[tuple[Block, list[Block]]]:
    """Return each row of a file with its example statements."""
    found: list[tuple[Block, list[Block]]] = []
    for block in read(path):
        if block.kind == "row":
            found.append((block, []))
        elif block.kind and found:
            found[-1][1].append(block)
    return found


def write(path: Path, blocks: Sequence[Block]) -> None:
    """Write the blocks to a file."""
    path.write_text("\n\n".join(block.text() for block in blocks) + "\n", encoding="utf-8")


def shown(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return result rows as lines, sorted."""
    return sorted(" ".join(map(_value, row)) for row in rows)


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{','.join(map(_value, value))}]"
    return str(value) if value != "" else "(empty)"

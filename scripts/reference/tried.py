"""The table in ``docs/sql.md`` that counts the statements of the tests: run, refused, by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.sql.files import DIALECTS, DOMAINS, Block, files, read
from tests.sql.pages import statements

BEGIN: Final = "<!-- tried: begin -->\n"
END: Final = "<!-- tried: end -->\n"
#: Code of refusals of valid SQL.
UNSUPPORTED: Final = "unsupported-sql"
#: Pages with statements that tests run, and the line before each of them.
PAGES: Final = {"cookbook": "", "migration": "anabranch:"}


def page(text: str) -> str:
    """``text`` of the page with the table of all groups."""
    head = "| statements | tried | run | refused as unsupported | refused for others | codes |"
    lines = [head, "|---|---:|---:|---:|---:|---|", *map(_row, groups())]
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n".join(lines) + "\n" + END + after


def groups() -> Iterator[tuple[str, list[Block]]]:
    """Each group of statements with its name: rows of this page, dialects, domains, pages."""
    yield "examples of the rows above and below", _blocks(files())
    yield "other dialects", _blocks(files(DIALECTS))
    for path in files(DOMAINS):
        yield f"everyday: {path.stem}", _blocks([path])
    yield "everyday, together", _blocks(files(DOMAINS))
    for name, before in PAGES.items():
        found = statements(f"{name}.md", before)
        yield f"page: {name}", [Block("query", sql) for sql in found.values()]


def code_of(block: Block) -> str:
    """The code of a refusal."""
    return block.answer[0].partition(":")[0]


def _blocks(paths: Iterable[Path]) -> list[Block]:
    found = [block for path in paths for block in read(path)]
    return [block for block in found if block.kind in ("query", "refused")]


def _row(group: tuple[str, list[Block]]) -> str:
    name, blocks = group
    codes = Counter(code_of(block) for block in blocks if block.kind == "refused")
    valid = codes[UNSUPPORTED]
    listed = ", ".join(f"`{code}` {count}" for code, count in sorted(codes.items()))
    ran = sum(block.kind == "query" for block in blocks)
    refused = f"{valid} | {sum(codes.values()) - valid}"
    return f"| {name} | {len(blocks)} | {ran} | {refused} | {listed} |"

"""Tables in Markdown, for the reference pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Return a text as a cell: one line, with bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, and an empty line; nothing if the table has no rows."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    if not lines:
        return []
    return [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines, ""]


def code(text: object) -> str:
    """Return a text as inline code; empty if there is none."""
    return f"`{text}`" if str(text) else ""

"""Excerpt of a faulty statement: the line of the error, with a caret under its position."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console

#: Maximum width of an excerpt in terminal cells.
_WIDEST = 80
_TAB = "    "
_CUT = "…"


def excerpt(text: str, line: int, column: int, width: int) -> str:
    """Line ``line`` of ``text`` and a caret under its ``column`` (both from 1); empty if there is
    no such line.

    Both lines take less than ``width`` cells: a longer line is cut on the side further from the
    caret. A column beyond the end of the line means the position after its last character.

    >>> print(excerpt("SELECT a\\nFROM b", 2, 6, 80))
      2 | FROM b
        |      ^
    """
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return ""
    shown = lines[line - 1].removesuffix("\r")
    before, after = _plain(shown[: column - 1]), _plain(shown[column - 1 :])
    margin = f"  {line} | "
    room = max(width - len(margin) - 1, 1)
    if cell_len(before + after) > room:
        before, after = _cut(before, after, room)
    mark = " " * (len(margin) - 2) + "| " + " " * cell_len(before) + "^"
    return f"{margin}{before}{after}".rstrip() + f"\n{mark}"


def excerpt_width(console: Console) -> int:
    """Maximum width in cells of an excerpt on ``console``."""
    return min(console.width, _WIDEST)


def _plain(text: str) -> str:
    """``text`` without characters that move the cursor."""
    spaced = text.replace("\t", _TAB)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in spaced)


def _cut(before: str, after: str, room: int) -> tuple[str, str]:
    """The text on both sides of a caret, cut to ``room`` cells; a cut side gets an ellipsis."""
    left = room // 2
    if cell_len(before) <= left:
        return before, _head(after, room - cell_len(before))
    if cell_len(after) <= room - left:
        return _head(before[::-1], room - max(cell_len(after), 1))[::-1], after
    return _head(before[::-1], left)[::-1], _head(after, room - left)


def _head(text: str, room: int) -> str:
    """The beginning of ``text`` in at most ``room`` cells, with an ellipsis if it is cut."""
    if cell_len(text) <= room:
        return text
    kept, used = "", cell_len(_CUT)
    for character in text:
        used += cell_len(character)
        if used > room:
            break
        kept += character
    return kept + _CUT

"""Wrap prose of Markdown at 100 characters: ``python scripts/reflow.py FILE ...``.

Paragraphs and list items with a longer line are wrapped again; tables, headings, fenced and
indented blocks and HTML stay. A link or a code span is never broken.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

WIDTH: Final = 100
_FENCE: Final = re.compile(r"^\s*(?:```|~~~)")
#: A list item; and lines that begin a separate block, or are no prose.
_ITEM: Final = re.compile(r"^(\s*)([-*+]|\d+\.)(\s+)")
_OTHER: Final = re.compile(r"^\s*(?:\||#|<|>|\[[^\]]+\]:|---|===)|^ {4,}\S")
#: Pieces within which a line is never broken: code, links and pictures, words.
_PIECE: Final = re.compile(r"(?:`+[^`]+`+|!?\[[^\]]*\]\([^)]*\)|\S)+")


def wrapped(text: str) -> str:
    """Return the Markdown with long prose wrapped; other prose stays as it is."""
    lines: list[str] = []
    block: list[str] = []
    fenced = False

    def close() -> None:
        lines.extend(_paragraph(block))
        block.clear()

    for line in text.split("\n"):
        if _FENCE.match(line):
            close()
            fenced = not fenced
            lines.append(line)
        elif fenced or not line.strip() or (_OTHER.match(line) and not (block and _hangs(line))):
            close()
            lines.append(line)
        elif _ITEM.match(line):
            close()
            block.append(line)
        else:
            block.append(line)
    close()
    return "\n".join(lines)


def _hangs(line: str) -> bool:
    """Whether an indented line continues a list item."""
    return line.startswith("    ") and not line.lstrip().startswith(("|", "#", "<", ">"))


def _paragraph(block: list[str]) -> list[str]:
    if all(len(line) <= WIDTH for line in block) or any(line.endswith("  ") for line in block):
        return block
    item = _ITEM.match(block[0])
    indent = re.match(r"\s*", block[0])
    first = item.group() if item else (indent.group() if indent else "")
    hang = " " * len(first)
    body = " ".join([block[0][len(first) :], *(line.strip() for line in block[1:])])
    lines: list[list[str]] = [[]]
    for piece in _PIECE.findall(body):
        line = lines[-1]
        if line and len(first) + len(" ".join([*line, piece])) > WIDTH:
            # A line must not begin like a list item or a heading, so preceding words move to the
            # line as well.
            moved = [piece]
            while _begins_block(moved[0]) and len(line) > 1:
                moved.insert(0, line.pop())
            lines.append(moved)
        else:
            line.append(piece)
    return [(hang if i else first) + " ".join(line) for i, line in enumerate(lines)]


def _begins_block(piece: str) -> bool:
    """Whether a line that begins with this piece would be a list item or a heading."""
    return re.fullmatch(r"[-*+]|\d+\.|#+|>.*|\|.*|===+|---+", piece) is not None


def too_long(text: str) -> list[int]:
    """Return the numbers of the lines of prose that are too long and can be broken."""
    found, fenced = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif len(line) > WIDTH and not fenced and not line.lstrip().startswith(("|", "<")):
            mark = _ITEM.match(line)
            pieces = _PIECE.findall(line[mark.end() :] if mark else line)
            found += [number] if len(pieces) > 1 else []
    return found


def main(paths: list[str]) -> None:
    """Wrap each file in place."""
    for path in map(Path, paths):
        text = path.read_text(encoding="utf-8")
        if (new := wrapped(text)) != text:
            path.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

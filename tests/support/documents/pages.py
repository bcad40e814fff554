"""Markdown pages of the repository, with their links and the anchors of their headings.

Links and headings are parsed by rules common to GitHub and the site (mkdocs.yml); fenced blocks and
inline code are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]
#: Folders with Markdown for readers; hidden folders below them are skipped.
FOLDERS: Final = ("docs", "deploy", "examples", "tests", "benchmarks", ".github")

_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_CODE: Final = re.compile(r"(`+)(?:(?!\1).)+\1")
_LINK: Final = re.compile(
    r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)"
)
_HEADING: Final = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_ANCHOR: Final = re.compile(r"<a id=\"([^\"]+)\">")
_MARKUP: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)|[*`]")


class Link(NamedTuple):
    """A link or picture of a page: line, file within the repository, anchor ("": none)."""

    line: int
    target: Path
    anchor: str


def pages() -> list[Path]:
    """Return every Markdown file for readers, sorted."""
    found = [*ROOT.glob("*.md")]
    for folder in FOLDERS:
        found += (ROOT / folder).rglob("*.md")
    return sorted(found)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line outside of fenced blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def links(page: Path) -> Iterator[Link]:
    """Yield the links to files of the repository; links with a scheme are skipped."""
    lines = list(prose(page.read_text(encoding="utf-8")))
    # A link's text may continue in the next line: lines are joined, with their numbers by offset.
    starts, text = [], ""
    for number, line in lines:
        starts.append((len(text), number))
        text += _CODE.sub(lambda code: "x" * len(code.group()), line) + "\n"
    for match in _LINK.finditer(text):
        target, _, anchor = match[1].partition("#")
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        start = max(number for offset, number in starts if offset <= match.start())
        yield Link(start, (page.parent / target).resolve() if target else page, anchor)


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    text = _MARKUP.sub(lambda part: part[1] or "", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """The anchors of a page: ``<a id>`` and headings; repeated ones are numbered -1, -2, …"""
    found: dict[str, int] = {}
    for _, line in prose(page.read_text(encoding="utf-8")):
        found.update(dict.fromkeys(_ANCHOR.findall(line), 0))
        if heading := _HEADING.match(line):
            name = slug(heading[1])
            found[name] = found.get(name, -1) + 1
    return {name if i == 0 else f"{name}-{i}" for name, n in found.items() for i in range(n + 1)}

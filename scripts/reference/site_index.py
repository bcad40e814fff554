"""docs/llms.txt: the pages of the site with their first sentences, for language models.

The form is that of llmstxt.org: title, summary, a list of links for each part of the navigation.
Everything comes from mkdocs.yml and the pages, so nothing is maintained twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
#: Beginnings of notes on the making of a page.
_NOTES: Final = ("Made ", "Change the benchmarks")
#: Longest description of a page; a longer sentence is cut at a comma or semicolon before.
_LONGEST: Final = 200


class _Loader(yaml.SafeLoader):
    """Loader of mkdocs.yml, without its Python objects."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def page(outside: dict[str, str]) -> str:
    """Text of llms.txt.

    Args:
        outside: page of the repository outside of docs/ → its page on the site.
    """
    settings = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Loader)
    sources = {place: ROOT / source for source, place in outside.items()}
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}.", ""]
    lines += [next(_paragraphs((ROOT / "docs" / "index.md").read_text("utf-8"))), ""]
    for title, entries in _parts(settings["nav"]):
        lines += [f"## {title}", ""]
        for name, place in entries:
            source = sources.get(place, ROOT / "docs" / place)
            about = _description(source.read_text("utf-8")) if source.is_file() else ""
            lines.append(f"- [{name}]({_address(place)})" + (f": {about}" if about else ""))
        lines.append("")
    return "\n".join(lines)


def _parts(nav: list[dict[str, Any]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Parts of the navigation with their pages; single pages are the part "Start" or "More"."""
    single: list[tuple[str, str]] = []
    title = "Start"
    for entry in nav:
        ((name, value),) = entry.items()
        if isinstance(value, str):
            single.append((name, value))
            continue
        if single:
            yield title, single
            single, title = [], "More"
        yield name, [pair for page in value for pair in page.items()]
    if single:
        yield title, single


def _address(place: str) -> str:
    """Address of a page, relative to the site's root."""
    stem = place.removesuffix(".md")
    return stem.removesuffix("index") or "./" if stem.endswith("index") else f"{stem}/"


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of prose below the title, each in one line, without links."""
    for block in text.split("\n\n")[1:]:
        if not re.match(r"[#|`!<\-*]|\d+\.", block):
            yield _LINK.sub(r"\1", " ".join(block.split()))


def _description(text: str) -> str:
    """First sentence of a page, but for notes on its making; empty: there is none."""
    for paragraph in _paragraphs(text):
        for sentence in re.split(r"(?<=[.:])\s", paragraph):
            if not sentence.startswith(_NOTES):
                return _short(sentence.rstrip(".:"))
    return ""


def _short(sentence: str) -> str:
    if len(sentence) <= _LONGEST:
        return sentence
    return re.split(r"[,;]\s[^,;]*$", sentence[:_LONGEST])[0]

"""Generates docs/llms.txt: the pages of the site with their first sentences, for language models.

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
#: Beginnings of notes on the generation of a page, which are no descriptions.
_NOTES: Final = ("Made ", "Change the benchmarks")
#: Maximum length of a page's description; a longer sentence is cut at a comma or semicolon.
_LONGEST: Final = 200


class _Loader(yaml.SafeLoader):
    """YAML loader for mkdocs.yml that ignores its Python objects."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def page(outside: dict[str, str]) -> str:
    """Return the text of llms.txt.

    Args:
        outside: page outside of docs/ → its page on the site.
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
    """Yield parts of the navigation with their pages; single pages are in "Start" or "More"."""
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
    """Return the address of a page, relative to the site's root."""
    stem = place.removesuffix(".md")
    return stem.removesuffix("index") or "./" if stem.endswith("index") else f"{stem}/"


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of prose below the title, each as one line, without links."""
    for block in text.split("\n\n")[1:]:
        if not re.match(r"[#|`!<\-*]|\d+\.", block):
            yield _LINK.sub(r"\1", " ".join(block.split()))


def _description(text: str) -> str:
    """Return a page's first sentence except notes on its generation; empty if there is none."""
    for paragraph in _paragraphs(text):
        for sentence in re.split(r"(?<=[.:])\s", paragraph):
            if not sentence.startswith(_NOTES):
                return _short(sentence.rstrip(".:"))
    return ""


def _short(sentence: str) -> str:
    if len(sentence) <= _LONGEST:
        return sentence
    return re.split(r"[,;]\s[^,;]*$", sentence[:_LONGEST])[0]

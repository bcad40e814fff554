"""Tests that names in the glossary and in CONTRIBUTING exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("contract", "planner", "runtime", "service", "client", "benchmarks/papers")
_ROW = re.compile(r"^\| (?P<term>[^|]+?) \|.*\| `(?P<name>\w+)`(?: in `\S+`)? \|$", re.MULTILINE)
TERMS = {m["term"]: m["name"] for m in _ROW.finditer((ROOT / "docs/glossary.md").read_text())}


@pytest.fixture(scope="module")
def defined() -> set[str]:
    """Return all classes, functions and new types of the product and of the papers' folders."""
    files = (f for package in PACKAGES for f in (ROOT / package).rglob("*.py"))
    found = re.compile(r"^(?:class |def )(\w+)|^(\w+) = NewType", re.MULTILINE)
    return {a or b for file in files for a, b in found.findall(file.read_text())}


def test_there_are_terms() -> None:
    assert len(TERMS) >= 50


@pytest.mark.parametrize("term", TERMS)
def test_the_code_of_a_term_exists(term: str, defined: set[str]) -> None:
    assert TERMS[term] in defined


def test_answers_are_files() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("### Where is it?") : text.index("## Style")]
    paths = re.findall(r"`([a-z_]+/[\w/]+\.py)`", table)
    assert "### A sink" in table
    assert len(paths) >= 20
    assert [path for path in paths if not (ROOT / path).is_file()] == []

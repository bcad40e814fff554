"""Tests that a release's version is the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.release_check import ROOT, disagreements

CHANGELOG = "# Changelog\n\n## [Unreleased]\n{}\n## [1.2.0] - 2026-11-26\n\n- One.\n"


def _write(folder: Path, *, cited: str = "1.2.0", changelog: str = "", source: bool = True) -> Path:
    urls = '[project.urls]\nSource = "https://example.org"\n' if source else ""
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "1.2.0"\n{urls}')
    (folder / "CITATION.cff").write_text(f"cff-version: 1.2.0\nversion: {cited}\n")
    (folder / "CHANGELOG.md").write_text(changelog or CHANGELOG.format(""))
    return folder


def test_this_tree_agrees_with_itself() -> None:
    assert disagreements(ROOT) == []


def test_a_release_agrees(tmp_path: Path) -> None:
    assert disagreements(_write(tmp_path), "v1.2.0") == []


def test_entries_may_be_unreleased_where_nothing_is_tagged(tmp_path: Path) -> None:
    _write(tmp_path, changelog=CHANGELOG.format("\n- Two.\n"))
    assert disagreements(tmp_path) == []
    assert disagreements(tmp_path, "v1.2.0") == [
        "CHANGELOG.md: 1 entries are unreleased: move them"
    ]


@pytest.mark.parametrize(
    ("changes", "tag", "place"),
    [
        ({}, "v1.3.0", "the tag is v1.3.0"),
        ({}, "1.2.0", "the tag is 1.2.0"),
        ({"source": False}, "v1.2.0", "pyproject.toml"),
        ({"cited": "1.1.0"}, "", "CITATION.cff"),
        ({"changelog": "# Changelog\n\n## [Unreleased]\n"}, "", "CHANGELOG.md"),
        ({"changelog": CHANGELOG.format("\n## [1.3.0] - 2026-12-01\n")}, "", "CHANGELOG.md"),
        ({"changelog": "## [1.2.0]\n"}, "", "CHANGELOG.md"),
    ],
)
def test_a_difference_is_named(
    tmp_path: Path, changes: dict[str, Any], tag: str, place: str
) -> None:
    (found,) = disagreements(_write(tmp_path, **changes), tag)
    assert found.startswith(place)

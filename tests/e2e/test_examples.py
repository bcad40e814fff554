"""Test of all examples in one pipeline: their command succeeds, and prints what their
pages show.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from examples.example import FOLDER, NAMES
from tests.support.documents.pages import ROOT


@pytest.fixture(scope="module")
def printed() -> str:
    """Output of all examples; the command compares their results with DuckDB's."""
    run = subprocess.run(
        [sys.executable, "-m", "examples"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_folder_is_an_example() -> None:
    assert sorted(path.parent.name for path in FOLDER.glob("*/queries.sql")) == list(NAMES)


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_its_page_shows(name: str, printed: str) -> None:
    page = (FOLDER / name / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown in printed
    assert ": 0 rows" not in shown
    queries = re.findall(r"^-- name: (\w+)$", (FOLDER / name / "queries.sql").read_text(), re.M)
    assert re.findall(r"^(\w+): \d+ rows$", shown, re.MULTILINE) == queries
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == queries

"""Tests of the search for changes that affect the benchmarks; without any, CI omits their tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.benchmarks_untouched import FOLDERS, ROOT, imported, reached


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a benchmark, its test, two modules of the planner and a page."""
    for path, text in {
        "benchmarks/speed.py": "from anabranch_planner import cost\n",
        "tests/benchmarks/test_speed.py": "import tests.support.rows\n",
        "tests/support/rows.py": "",
        "planner/anabranch_planner/cost/__init__.py": "from anabranch_planner import deep\n",
        "planner/anabranch_planner/deep.py": "",
        "docs/page.md": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout


def commit(tree: Path) -> None:
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "Change")


@pytest.mark.parametrize(
    ("path", "reaches"),
    [
        ("benchmarks/speed.py", True),
        ("benchmarks/new/figures.json", True),
        ("tests/benchmarks/test_speed.py", True),
        ("tests/support/rows.py", True),
        ("planner/anabranch_planner/cost/__init__.py", True),
        ("constraints.txt", True),
        ("planner/anabranch_planner/deep.py", False),
        ("benchmarks.md", False),
        ("docs/page.md", False),
    ],
)
def test_changes_that_reach_the_benchmarks(tree: Path, path: str, reaches: bool) -> None:
    (tree / path).parent.mkdir(exist_ok=True)
    (tree / path).write_text("# changed\n")
    commit(tree)
    assert reached(tree, "HEAD^") == ([path] if reaches else [])
    assert reached(tree, "HEAD") == []


def test_changes_of_the_other_side_do_not_count(tree: Path) -> None:
    git(tree, "switch", "-qc", "other")
    (tree / "benchmarks/speed.py").write_text("# theirs\n")
    commit(tree)
    git(tree, "switch", "-q", "-")
    (tree / "docs/page.md").write_text("ours\n")
    commit(tree)
    assert reached(tree, "other") == []


def test_a_removed_and_a_renamed_module_reach_them(tree: Path) -> None:
    git(tree, "mv", "benchmarks/speed.py", "docs/speed.py")
    (tree / "tests/benchmarks/test_speed.py").unlink()
    commit(tree)
    assert reached(tree, "HEAD^") == ["benchmarks/speed.py", "tests/benchmarks/test_speed.py"]


@pytest.mark.parametrize("since", ["", "nowhere", "0" * 40])
def test_unknown_changes_count_as_reaching(tree: Path, since: str) -> None:
    assert reached(tree, since) is None


def test_this_tree_has_its_imports() -> None:
    found = imported(ROOT)
    for package in ("contract", "planner", "runtime", "client", "tests/support"):
        assert any(path.startswith(f"{package}/") for path in found), package
    assert all((ROOT / folder).is_dir() for folder in FOLDERS)

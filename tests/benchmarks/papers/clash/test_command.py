"""Tests of ``python -m benchmarks.papers clash``: random planning problems as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_planner.command.problem_file import ProblemFile, parse_problem
from anabranch_planner.documents.yaml import load_yaml
from tests.benchmarks.papers.commands import run

SHAPE = ("--relations", "6", "--queries", "4", "--size", "3", "--seed", "1")


def problem_of(text: str) -> ProblemFile:
    return parse_problem(load_yaml(text))


def test_a_random_problem_is_a_problem_file(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    arguments = ("clash", "random", "--relations", "10", "--queries", "5", "--size", "3")
    printed = run(*arguments, "--seed", "7")
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert run(*arguments, "--seed", "7", "-o", str(path)) == (0, "", "")
    assert path.read_text(encoding="utf-8") == printed.stdout
    assert printed.stdout.splitlines()[0] == (
        "# python -m benchmarks.papers clash random --environment natural --relations 10"
        " --queries 5 --size 3 --seed 7"
    )
    problem = problem_of(printed.stdout)
    assert (len(problem.queries), problem.assumed) == (5, ())


def test_trees_and_pools() -> None:
    trees = run("clash", "random", *SHAPE, "--environment", "tree", "--attributes", "2").stdout
    assert "with 2 attributes each" in trees
    assert len(problem_of(trees).queries) == 4
    pool = run("clash", "random", *SHAPE, "--attributes", "4", "--per-relation", "2").stdout
    assert "each with 2 of 4 attributes" in pool
    assert "--attributes 4 --per-relation 2\n" in pool


def test_too_few_queries_exist() -> None:
    shape = ("--relations", "4", "--queries", "50", "--size", "3", "--seed", "1")
    result = run("clash", "random", *shape)
    assert result.exit_code == 0
    assert result.stderr == "note: only 4 distinct queries exist, 50 were asked for\n"
    assert "# only 4 distinct queries exist, 50 were asked for\n" in result.stdout
    assert len(problem_of(result.stdout).queries) == 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--relations", "3"), "--queries"),
        (
            ("--relations", "2", "--queries", "1", "--size", "3", "--seed", "1"),
            "relations: 2 relations are too few for queries of 3",
        ),
        ((*SHAPE, "-o", "/nowhere/p.yaml"), "no such file or directory"),
    ],
)
def test_unusable_arguments(arguments: tuple[str, ...], reason: str) -> None:
    result = run("clash", "random", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr

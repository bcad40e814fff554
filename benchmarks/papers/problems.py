"""Problem files (docs/planner.md) as arguments of the papers' commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch_contract.errors import PlannerError
from anabranch_planner.command.problem_file import Problem, parse_problem
from anabranch_planner.documents.yaml import load_yaml

if TYPE_CHECKING:
    import argparse


def add_problem(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``problem``, the file's name."""
    parser.add_argument("problem", metavar="PROBLEM.yaml", help="problem file; - reads stdin")


def read_problem(name: str) -> Problem:
    """The problem in a file.

    Args:
        name: path; ``-`` reads standard input.

    Raises:
        PlannerError: the file is unreadable (``no-file``), or no problem.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        raise PlannerError("no-file", str(cause), field=name, remedy="check the path") from cause
    return parse_problem(load_yaml(text))

"""Problem files (docs/planner.md) as arguments of the papers' subcommands; output as JSON
or text.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from anabranch_contract.errors import PlannerError
from anabranch_planner.documents.yaml import load_yaml

T = TypeVar("T")


def problem_argument(parser: argparse.ArgumentParser) -> None:
    """Add the arguments ``problem`` and ``--json``."""
    parser.add_argument("problem", metavar="PROBLEM.yaml", help="the problem; - is standard input")
    parser.add_argument("--json", action="store_true", help="write one line of JSON")


def read_document(name: str) -> Any:
    """Read the YAML document in the file ``name``; ``-`` is standard input.

    Raises:
        PlannerError: the file can't be read, or is not YAML in UTF-8.
    """
    try:
        given = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return load_yaml(given.decode("utf-8-sig"))
    except OSError as cause:
        reason = (cause.strerror or type(cause).__name__).lower()
        raise PlannerError(
            "no-file", reason, field=shlex.quote(name), remedy="check the path"
        ) from cause
    except UnicodeDecodeError as cause:
        raise PlannerError(
            "malformed-problem", "this is not UTF-8 text", field=name, remedy="name a YAML file"
        ) from cause


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of ``work``, and its time in seconds."""
    began = time.perf_counter()
    answer = work()
    return answer, time.perf_counter() - began


def write(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Write ``document`` as one line of JSON, or ``text``."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n" if as_json else text)

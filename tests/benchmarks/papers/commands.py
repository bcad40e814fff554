"""Run ``python -m benchmarks.papers`` in this process, for tests."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.papers.__main__ import main


class Ended(NamedTuple):
    """Output and exit code of a finished command."""

    exit_code: int
    stdout: str
    stderr: str


def run(*arguments: str, stdin: str = "") -> Ended:
    """Run a papers command with ``stdin`` as its input."""
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with patch.object(sys, "stdin", given), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(str(stop.code))
    return Ended(code, out.getvalue(), err.getvalue())


def answer(*arguments: str, stdin: str = "") -> dict[str, Any]:
    """Run a papers command, and return its only line of JSON output."""
    ended = run(*arguments, "--json", stdin=stdin)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.stdout.count("\n") == 1
    document = json.loads(ended.stdout)
    assert isinstance(document, dict)
    return document

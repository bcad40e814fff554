"""Runs of ``python -m benchmarks.papers`` in this process."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import NamedTuple

import pytest

from benchmarks.papers.__main__ import main


class Result(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def run(*arguments: str, stdin: str = "") -> Result:
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
    ):
        patch.setattr("sys.stdin", StringIO(stdin))
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Result(code, out.getvalue(), err.getvalue())

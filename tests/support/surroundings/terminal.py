"""The ``anabranch`` command as users run it: in a terminal of some width, or piped."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Ended:
    """Outcome of a command."""

    code: int
    stdout: str
    stderr: str


def piped(*arguments: str, timeout: float = 120, **variables: str) -> Ended:
    """Run the command with its output piped."""
    done = subprocess.run(
        _argv(arguments),
        env=_environment(variables),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def in_terminal(columns: int, *arguments: str, **variables: str) -> Ended:
    """Run the command with its standard output on a terminal of ``columns`` columns; colours are
    removed.
    """
    reading, writing = os.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = _environment({"TERM": "xterm", **variables})
    with subprocess.Popen(
        _argv(arguments),
        env=environment,
        stdin=writing,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(writing)
        text = _all_of(reading)
        os.close(reading)
        assert process.stderr is not None
        said = process.stderr.read()
        code = process.wait()
    return Ended(code, _ESCAPES.sub("", text).replace("\r\n", "\n"), said)


def _all_of(file: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(file, 65536)
        except OSError:
            # On Linux, this error means that no writer is left.
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()


def _argv(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "anabranch_client", *arguments]


def _environment(variables: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")}
    return {**kept, **variables}

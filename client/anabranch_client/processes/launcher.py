"""Replaces itself by a program that the kernel ends together with the process that started it.

Run as a script: ``python -I -S launcher.py PARENT UMASK PROGRAM ARGUMENT...``. A function that is
called between fork and exec would do the same, but is unsafe where the parent has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Become the program that ``arguments`` name.

    Linux only: elsewhere the program outlives a parent that is killed, until the next start.
    """
    parent, mask, program = int(arguments[0]), int(arguments[1], 8), arguments[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            # It ended before the kernel could tie this process to it.
            sys.exit(1)
    os.umask(mask)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Launcher of a program that the kernel kills when the parent process dies.

Run as a script: ``python -I -S launcher.py PARENT UMASK PROGRAM ARGUMENT...``. A ``preexec_fn``
between fork and exec would do the same, but is unsafe if the parent has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Replace this process by the program in ``arguments``.

    On systems other than Linux the program outlives a killed parent; the next start ends it.
    """
    parent, mask, program = int(arguments[0]), int(arguments[1], 8), arguments[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            # The parent ended before the kernel could tie this process to its life.
            sys.exit(1)
    os.umask(mask)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Small file systems in memory, to be filled or made read-only in tests; mounting
needs privileges.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount(folder: Path, options: str) -> bool:
    """Mount a file system at ``folder``, or remount it with other options; return whether it
    worked.
    """
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of ``size`` at ``folder``; the test is skipped if that is
    not permitted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not mount(folder, f"size={size}"):
        pytest.skip("mounting takes privileges")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)

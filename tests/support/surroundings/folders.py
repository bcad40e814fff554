"""Folders in memory, if the system has any: fsync costs nothing there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")


def folder_in_memory(prefix: str) -> Path:
    """Create a folder, in memory if possible; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if _MEMORY.is_dir() else None))


@contextmanager
def passing_folder(prefix: str = "anabranch-") -> Iterator[Path]:
    """Context with a new folder, removed at the end."""
    folder = folder_in_memory(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

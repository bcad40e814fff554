"""Folders in memory, where there is such a thing: fsync costs nothing in them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")


def folder_in_memory(prefix: str) -> Path:
    """A new folder, in memory if possible; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if _MEMORY.is_dir() else None))


@contextmanager
def passing_folder(prefix: str = "anabranch-") -> Iterator[Path]:
    """A new folder, gone afterwards."""
    folder = folder_in_memory(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

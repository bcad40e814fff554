"""Diagnosis of errors caused by a full or read-only disk, with the folder and the remedy.

A write may fail in the driver, in a task (Spark passes on its traceback), or in the JVM. All these
errors quote the operating system's message, which is recognised by its text.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from anabranch_runtime.errors import PipelineError, StateError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
#: Codes of the pipeline's errors that quote an error of Spark or of a task.
_QUOTING = ("query-failed", "spark-not-started")


def diagnosed(error: Exception, folders: Sequence[Path]) -> Exception:
    """Return ``disk-full`` or ``not-writable`` if a disk caused ``error``; else ``error``."""
    if isinstance(error, StateError) or (
        isinstance(error, PipelineError) and error.code not in _QUOTING
    ):
        return error
    if _says_errno(error, _FULL):
        fullest = min(folders, key=lambda folder: shutil.disk_usage(_existing(folder)).free)
        free = shutil.disk_usage(_existing(fullest)).free
        return StateError(
            "disk-full",
            f"there is no space left for {fullest} ({free:,} bytes are free)",
            remedy="make room, or mount something larger there; then start the runtime again, "
            "nothing is lost",
        )
    if _says_errno(error, _REFUSED):
        for folder in folders:
            why = _refusal(_existing(folder))
            if why is not None:
                return StateError(
                    "not-writable",
                    f"{folder} can't be written to: {why}",
                    remedy="make it writable for the user that runs the runtime, and start it "
                    "again; nothing is lost",
                )
    return error


def _says_errno(error: BaseException | None, numbers: Sequence[int]) -> bool:
    texts = [os.strerror(number) for number in numbers]
    while error is not None:
        if isinstance(error, OSError) and error.errno in numbers:
            return True
        if any(text in str(error) for text in texts):
            return True
        error = error.__cause__
    return False


def _existing(folder: Path) -> Path:
    """Return ``folder``, or its nearest ancestor that exists on the disk."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _refusal(folder: Path) -> str | None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as cause:
        return os.strerror(cause.errno or 0)

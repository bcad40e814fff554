"""Errors for files that can't be read, each with its remedy."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa

from anabranch_runtime.errors import SourceError

#: Exceptions that mean a damaged or missing file; lack of memory, for example, does not.
BROKEN = (OSError, pa.ArrowException, ValueError, KeyError, EOFError, zlib.error)
#: End of the remedy in the errors.
SKIP = "to go on without it, set the source's option on_bad_file to skip"


def unchanged(path: Path, size: int, mtime: int) -> None:
    """Check that a file has not changed since it was found.

    Raises:
        SourceError: ``missing-file``, ``file-changed``, ``unreadable-file``.
    """
    try:
        stat = path.stat()
    except OSError as cause:
        if not isinstance(cause, FileNotFoundError | NotADirectoryError):
            raise refused(path, cause) from cause
        raise SourceError(
            "missing-file",
            f"{path} was removed before it was read",
            field=str(path),
            remedy=f"put the file back; {SKIP}",
        ) from cause
    if (stat.st_size, stat.st_mtime_ns) != (size, mtime):
        raise SourceError(
            "file-changed",
            f"{path} has changed since it was found",
            field=str(path),
            remedy="restore the original file, and write new data to new files, to be renamed when"
            f" they are complete; {SKIP}",
        )


def damaged(path: Path, why: str, skip: str = SKIP) -> SourceError:
    """Return the error for a file whose content can't be read."""
    return SourceError(
        "damaged-file",
        f"{path} can't be read: {why}",
        field=str(path),
        remedy=f"restore the original file, with its modification time; {skip}",
    )


def refused(path: Path, cause: OSError, skip: str = SKIP) -> SourceError:
    """Return the error for a file that the operating system refuses to read."""
    return SourceError(
        "unreadable-file",
        f"{path} can't be read: {cause.strerror}",
        field=str(path),
        remedy=f"give the runtime permission to read it; {skip}",
    )

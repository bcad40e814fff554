"""Errors for tables and data files that can't be read, each with its remedy."""

from __future__ import annotations

from pathlib import Path

from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.files.trouble import refused

#: End of the remedy in errors of data files.
SKIP = "to go on without it, set the source's option on_loss to skip"


def unreadable(path: Path, cause: Exception) -> SourceError:
    """Return the error for a part of a table that can't be read for now."""
    return SourceError(
        "unreadable-table",
        f"{path} can't be read: {cause}",
        field=str(path),
        remedy="see that the runtime may read it, and that it is whole",
    )


def lost(path: Path) -> SourceError:
    """Return the error for a data file that was removed before it was read."""
    return SourceError(
        "missing-file",
        f"{path} was removed before it was read, perhaps by VACUUM",
        field=str(path),
        remedy="register the stream again, which reads the table as it is now, and give VACUUM a "
        f"longer retention; {SKIP}",
    )


def check_size(path: Path, size: int) -> None:
    """Check that a data file is there and has the ``size`` that its table says.

    Raises:
        SourceError: ``missing-file``, ``file-changed``, ``unreadable-file``.
    """
    try:
        found = path.stat().st_size
    except OSError as cause:
        if not isinstance(cause, FileNotFoundError | NotADirectoryError):
            raise refused(path, cause, SKIP) from cause
        raise lost(path) from cause
    if found != size:
        raise SourceError(
            "file-changed",
            f"{path} has {found} bytes, and its table says {size}",
            field=str(path),
            remedy=f"restore the file; {SKIP}",
        )

"""Opening of tables' data files, local ones and in object stores, and errors in reading them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.lake.library import files_of

#: End of the remedy in errors for data files.
SKIP = "to go on without it, set the source's option on_loss to skip"


def unreadable(place: Path | str, cause: Exception) -> SourceError:
    """Return the error for a part of a table that can't be read for now."""
    return SourceError(
        "unreadable-table",
        f"{place} can't be read: {cause}",
        field=str(place),
        remedy="check that the runtime may read the file, and that the file is complete",
    )


def lost(path: Path | str) -> SourceError:
    """Return the error for a data file that was removed before it was read."""
    return SourceError(
        "missing-file",
        f"{path} was removed before it was read, perhaps by VACUUM or with an expired snapshot",
        field=str(path),
        remedy="register the stream again, which reads the table as it is now, and keep files "
        f"longer; {SKIP}",
    )


def refused(path: str, cause: Exception) -> SourceError:
    """Return the error for a data file that can't be read for now."""
    return SourceError(
        "unreadable-file",
        f"{path} can't be read: {getattr(cause, 'strerror', None) or cause}",
        field=path,
        remedy=f"check that the runtime may read the file, and that its server answers; {SKIP}",
    )


def check_size(path: str, size: int, catalog: str) -> None:
    """Check that a data file exists and has the ``size`` that the table's log states.

    Raises:
        SourceError: ``missing-file``, ``file-changed``, ``unreadable-file``.
    """
    try:
        here = local(path)
        if here is None:
            found = len(files_of(catalog, path).new_input(path))
        else:
            found = here.stat().st_size
    except (FileNotFoundError, NotADirectoryError) as cause:
        raise lost(path) from cause
    except OSError as cause:
        raise refused(path, cause) from cause
    if found != size:
        raise SourceError(
            "file-changed",
            f"{path} has {found} bytes, and its table says {size}",
            field=path,
            remedy=f"restore the file; {SKIP}",
        )


def opened(path: str, catalog: str) -> Any:
    """Open a data file for ``pyarrow.parquet``; if it is not local, by the settings of ``catalog``.

    Raises:
        OSError: the file does not exist, or can't be read.
    """
    here = local(path)
    return here if here is not None else files_of(catalog, path).new_input(path).open()


def local(path: str) -> Path | None:
    """Return a data file's path on this machine; None for an address elsewhere.

    >>> local("file:///a b/c%20d"), local("/x"), local("s3://x/y")
    (PosixPath('/a b/c%20d'), PosixPath('/x'), None)
    """
    plain = path.removeprefix("file:")
    if plain != path:
        plain = "/" + plain.lstrip("/")
    return Path(plain) if plain.startswith("/") else None

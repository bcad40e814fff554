"""Output folder of a replay: a new folder, or that of an earlier replay.

A marker file shows that a replay made the folder. In a marked folder only the files that replays
write are removed. In a folder without the marker nothing is ever removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from anabranch_client.errors import UsageError
from anabranch_client.supervise.home import refuse_held

#: The marker file. It is locked as long as a replay writes to the folder.
MARK = ".anabranch-replay"
_VERSION = 1
#: Files that only the processes need; files kept at the end (``tpch``: the demo's input).
_WORKING = ("state", "redis", "service.port", "admin.token")
_LASTING = ("results", "logs", "report.json", "tpch")


def refuse_used(out: Path, *, force: bool) -> None:
    """Raise an error if a replay may not write to ``out``.

    Args:
        out: the folder, which need not exist.
        force: whether the files of an earlier replay may be replaced.

    Raises:
        HeldError: `anabranch up` runs in the folder.
        UsageError: the folder has other files, or an earlier replay's files without ``force``.
    """
    refuse_held(out)
    try:
        names = sorted(path.name for path in out.iterdir())
    except FileNotFoundError:
        return
    except OSError as cause:
        raise _unusable(out, cause) from cause
    if MARK in names:
        if not force and set(names) & {*_WORKING, *_LASTING}:
            raise UsageError(
                f"{out} holds what an earlier replay has written",
                field="--out",
                remedy="name another folder, or replace it with --force",
            )
    elif names:
        some = ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
        raise UsageError(
            f"{out} is not empty ({some}), and no replay made it",
            field="--out",
            remedy="name a new folder",
        )


@contextlib.contextmanager
def output_folder(out: Path, *, force: bool = False) -> Iterator[Path]:
    """Context with the output folder of a replay: created if needed, cleared of an earlier replay.

    Files that only the processes need are removed at the end.

    Raises:
        HeldError: `anabranch up` runs in the folder.
        UsageError: the folder may not be used (:func:`refuse_used`), or can't be written.
    """
    refuse_used(out, force=force)
    try:
        out.mkdir(parents=True, exist_ok=True)
        mark = (out / MARK).open("a", encoding="utf-8")
    except OSError as cause:
        raise _unusable(out, cause) from cause
    with mark:
        try:
            _lock(mark, out)
            _write(mark)
            _remove(out, (*_WORKING, *_LASTING))
            (out / "results").mkdir()
        except OSError as cause:
            raise _unusable(out, cause) from cause
        try:
            yield out.resolve()
        finally:
            with contextlib.suppress(OSError):
                _remove(out, _WORKING)


def _lock(mark: TextIO, out: Path) -> None:
    try:
        fcntl.flock(mark.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as cause:
        raise UsageError(
            f"another replay writes to {out}", field="--out", remedy="name another folder"
        ) from cause


def _write(mark: TextIO) -> None:
    mark.truncate(0)
    mark.write(json.dumps({"version": _VERSION, "pid": os.getpid()}) + "\n")
    mark.flush()


def _remove(out: Path, names: tuple[str, ...]) -> None:
    """Remove entries of a replay's folder; a link is removed without its target."""
    for name in names:
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _unusable(out: Path, cause: OSError) -> UsageError:
    return UsageError(
        f"cannot write {cause.filename or out}: {cause.strerror or cause}",
        field="--out",
        remedy="name a folder that can be written",
    )

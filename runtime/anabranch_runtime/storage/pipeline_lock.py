"""Identity and lock of a state directory: it belongs to one pipeline, and to one process at a time.

A pipeline consists of its state and its Redis namespace. Both have the same id, created at the
pipeline's first start, so that a state with another pipeline's Redis, or with an empty one, is
detected. The process that runs the pipeline holds a lock on the directory as long as it lives.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch_runtime.control import Control
from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.documents import read_document
from anabranch_runtime.storage.durable import IDENTITY, durable

_ANEW = "start again with an empty state directory and another namespace"


@contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Hold the directory's lock; the operating system releases it when the process ends.

    Raises:
        StateError: ``state-in-use``: another process holds the lock.
    """
    with (root / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            file.seek(0)
            raise StateError(
                "state-in-use",
                f"{root} is in use by process {file.read().strip() or 'unknown'}",
                remedy="stop that pipeline first, or give this one a state directory of its own",
            ) from cause
        file.truncate(0)
        file.write(f"{os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        yield


def identity(root: Path) -> str:
    """Return the pipeline's id in the state; it is created if there is none. Sinks that record
    received batches identify the pipeline by it.

    Raises:
        StateError: ``damaged-identity``.
    """
    path = root / "pipeline.json"
    if not path.exists():
        durable(root).write(path, IDENTITY, uuid.uuid4().hex)
    return str(read_document(path, IDENTITY))


def identify(root: Path, control: Control, *, fresh: bool) -> str:
    """Return the pipeline's id, after making sure that both state and Redis have it.

    Args:
        root: the state directory.
        control: the pipeline's Redis.
        fresh: whether the state is empty.

    Raises:
        StateError: ``redis-lost``, ``state-lost`` or ``foreign-state``: state and Redis belong to
            different pipelines.
    """
    path = root / "pipeline.json"
    there = control.pipeline()
    here: str | None = None
    if path.exists():
        try:
            here = str(read_document(path, IDENTITY))
        except StateError as error:
            # The document with the id is damaged, so it is written again with the id in Redis.
            if error.code == "unknown-version" or there is None:
                raise
    if there is None:
        if not fresh and (here is not None or control.last_boundary() is None):
            raise lost(control)
    elif here is None and fresh and not path.exists():
        raise StateError(
            "state-lost",
            f"{control.where} knows of a pipeline, {root} is empty",
            remedy="restore the state directory; or, to begin again from the sources, empty the "
            f"results and use another namespace or delete the key {control.keys.pipeline!r}",
        )
    if here is not None and there is not None and here != there:
        raise StateError(
            "foreign-state",
            f"{root} belongs to another pipeline than {control.where}",
            remedy=f"correct the state directory or the namespace, or {_ANEW}",
        )
    if here is None and there is not None:
        durable(root).write(path, IDENTITY, there)
    found = identity(root)
    if there is None:
        control.claim(found)
    return found


def lost(control: Control) -> StateError:
    """Return the error for a Redis that has lost the data of the state's pipeline."""
    return StateError(
        "redis-lost",
        f"{control.where} has lost its data of this pipeline (streams, queries, rulesets)",
        remedy=f"restore Redis from its append-only file or a backup, or {_ANEW}; run it with "
        "appendonly yes",
    )

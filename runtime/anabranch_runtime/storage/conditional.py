"""Objects of a store that change only as they were read.

Two drivers may run for one pipeline: started by mistake, paused and waked up, or with clocks that
differ. What either has read it may replace as long as nobody else has, and what was not there it
may make: ``If-Match`` and ``If-None-Match`` of S3 and GCS, through ``obstore``, as ``pyarrow.fs``
does not have them. So of several writers of one object one succeeds, whatever any of them believes.

In a directory the same is done while it is locked.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.storage.documents import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


class ChangedError(Exception):
    """Somebody else has written the object."""


@dataclass(frozen=True, slots=True)
class Version:
    """What tells one content of an object from another, as its store has it."""

    tag: str | None
    number: str | None = None


class Conditional(Protocol):
    """A store whose objects can be replaced by who knows them."""

    def read(self, name: str) -> tuple[bytes, Version] | None:
        """The content of ``name`` and its version; None where it is not there."""

    def put(self, name: str, content: bytes, known: Version | None) -> Version:
        """Make ``name`` be ``content`` if it is what is ``known`` (None: if it is not there).

        Raises:
            ChangedError: it is something else, and not ``content`` either.
            OSError: the store can't be written to.
        """


@dataclass(frozen=True, slots=True)
class Folder:
    """In a directory that all processes see, by the content itself."""

    base: Path

    def read(self, name: str) -> tuple[bytes, Version] | None:
        """As in :class:`Conditional`."""
        try:
            content = (self.base / name).read_bytes()
        except FileNotFoundError:
            return None
        return content, Version(hashlib.sha256(content).hexdigest())

    def put(self, name: str, content: bytes, known: Version | None) -> Version:
        """As in :class:`Conditional`."""
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            there = self.read(name)
            if there is not None and there[0] == content:
                return there[1]
            if (None if there is None else there[1]) != known:
                raise ChangedError(name)
            partial = path.with_name(f"{path.name}.partial")
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)
            sync_directory(path.parent)
        return Version(hashlib.sha256(content).hexdigest())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        number = os.open(self.base, os.O_RDONLY)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)


def open_conditional(uri: str) -> Conditional:
    """The store of an address as :func:`object_store.open_remote` takes it; nothing is read yet.

    Raises:
        PipelineError: ``no-conditional-writes``: a store of that kind has none.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("file", ""):
        return Folder(Path(unquote(parts.path)))
    if parts.scheme in ("s3", "gs", "gcs"):
        # Who has no object store does not wait for its client to be loaded.
        from anabranch_runtime.storage.conditional_http import open_objects

        return open_objects(uri)
    raise PipelineError(
        "no-conditional-writes",
        f"in a store of kind {parts.scheme!r} an object can't be replaced only as it was read, so "
        "two pipelines could overwrite each other's state",
        field="object_store",
        remedy="use s3://, gs:// or file://",
    )

"""An object store: named immutable bytes below one prefix, over any file system of ``pyarrow.fs``.

An object appears whole or not at all. S3 and GCS promise that of a put; in a directory an object is
written beside its place and moved there. What fails is tried again a few times, unless it was
refused, and then names the object and what to do.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.storage.documents import sync_directory
from anabranch_runtime.storage.leftovers import Listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    T = TypeVar("T")

#: File systems whose puts are atomic, and those where a move is.
_ATOMIC, _MOVING = ("s3", "gcs"), ("local",)
#: Seconds to wait between attempts, beside what the file system's own client tries.
PAUSES = (0.1, 0.5, 2.0)
#: Bytes that go through memory at once.
BLOCK = 1 << 22
#: Endings of names that are not complete objects.
_PARTIAL = ".partial"
#: Messages of a store that answers and refuses; trying again does not help.
_REFUSALS = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "INVALID_CLIENT_TOKEN_ID",
    "UNRECOGNIZED_CLIENT",
    "MISSING_AUTHENTICATION_TOKEN",
    "TOKEN_EXPIRED",
    "ExpiredToken",
    "NO_SUCH_BUCKET",
    "HTTP status 401",
    "HTTP status 403",
    "Permission denied",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "Unauthenticated",
    "Permission: ",
    "No space left",
    "Read-only file system",
)


#: Codes of errors of a store itself, not of what is in it.
UNAVAILABLE = ("store-unreachable", "store-refused")


@dataclass(frozen=True, slots=True)
class Remote:
    """The objects below ``base``; names are relative to it, with slashes.

    Attributes:
        uri: by which other processes open the same; it may hold credentials.
    """

    uri: str
    files: fs.FileSystem
    base: str

    @property
    def where(self) -> str:
        """The store for messages: without credentials."""
        return f"{self.files.type_name}:{self.base}"

    def put(self, name: str, content: bytes) -> None:
        """Make ``name`` be ``content``; returns once it is durable."""
        self.attempt("written", name, lambda: self._write(name, pa.BufferReader(content)))

    def upload(self, name: str, file: Path) -> None:
        """Make ``name`` have what ``file`` has."""

        def write() -> None:
            with pa.OSFile(str(file), "rb") as source:
                self._write(name, source)

        self.attempt("written", name, write)

    def get(self, name: str) -> bytes | None:
        """The content of ``name``; None where it is not there."""

        def read() -> bytes:
            with self.files.open_input_stream(self._path(name)) as stream:
                content: bytes = stream.read()
                return content

        try:
            return self.attempt("read", name, read)
        except FileNotFoundError:
            return None

    def download(self, name: str, file: Path) -> None:
        """Write what ``name`` has to ``file``.

        Raises:
            FileNotFoundError: it is not there.
            OSError: ``file`` can't be written.
        """

        def read() -> None:
            with self.files.open_input_stream(self._path(name)) as stream:
                with _here():
                    sink = file.open("wb")
                try:
                    while block := stream.read(BLOCK):
                        with _here():
                            sink.write(block)
                finally:
                    with _here():
                        sink.close()

        try:
            self.attempt("read", name, read)
        except _HereError as error:
            raise error.cause from error

    def part(self, name: str, offset: int, length: int) -> bytes:
        """Some bytes of ``name``; fewer where it ends before.

        Raises:
            FileNotFoundError: it is not there.
        """

        def read() -> bytes:
            with self.files.open_input_file(self._path(name)) as file:
                content: bytes = file.read_at(length, offset)
                return content

        return self.attempt("read", name, read)

    def size(self, name: str) -> int | None:
        """The bytes of ``name``; None where it is not there."""
        info = self.attempt("read", name, lambda: self.files.get_file_info(self._path(name)))
        size: int | None = info.size if info.type is fs.FileType.File else None
        return size

    def names(self) -> dict[str, int]:
        """Every object -> its size in bytes."""
        return {one.name: one.size for one in self.listed()}

    def listed(self, folder: str = "") -> list[Listed]:
        """The objects whose names begin with ``folder``, which ends with a slash."""
        place = self._path(folder).rstrip("/")
        selector = fs.FileSelector(place, recursive=True, allow_not_found=True)
        found = self.attempt("listed", folder, lambda: self.files.get_file_info(selector))
        prefix = self.base.rstrip("/") + "/"
        return [
            Listed(info.path.removeprefix(prefix), info.size, info.mtime_ns / 1e9)
            for info in found
            if info.type is fs.FileType.File and _PARTIAL not in info.path
        ]

    def delete(self, name: str) -> None:
        """Delete ``name`` if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.attempt("deleted", name, lambda: self.files.delete_file(self._path(name)))

    def _path(self, name: str) -> str:
        return f"{self.base.rstrip('/')}/{name}"

    def _write(self, name: str, source: pa.NativeFile) -> None:
        final = self._path(name)
        if self.files.type_name in _ATOMIC:
            with self.files.open_output_stream(final) as stream:
                _copy(source, stream)
            return
        partial = f"{final}.{uuid.uuid4().hex}{_PARTIAL}"
        self.files.create_dir(final.rpartition("/")[0], recursive=True)
        try:
            with self.files.open_output_stream(partial) as stream:
                _copy(source, stream)
            if self.files.type_name == "local":
                _sync(Path(partial))
            self.files.move(partial, final)
        except OSError:
            with contextlib.suppress(OSError):
                self.files.delete_file(partial)
            raise
        if self.files.type_name == "local":
            sync_directory(Path(final).parent)

    def attempt(self, verb: str, name: str, call: Callable[[], T]) -> T:
        """What ``call`` gives, tried again a few times where it raises ``OSError``.

        Raises:
            StateError: ``store-refused``, ``store-unreachable``.
        """
        for pause in (*PAUSES, None):
            try:
                return call()
            except OSError as error:
                if isinstance(error, FileNotFoundError) and verb != "written":
                    raise
                message = f"{self._path(name)} can't be {verb}: {error}"
                refused = isinstance(error, PermissionError | FileNotFoundError)
                if refused or any(text in str(error) for text in _REFUSALS):
                    raise StateError(
                        "store-refused",
                        message,
                        remedy="check the object store's name, its free space, and the "
                        "credentials and rights of this process; then start the runtime again, "
                        "nothing is lost",
                    ) from error
                if pause is None:
                    raise StateError(
                        "store-unreachable",
                        message,
                        remedy="see to it that the object store answers, and start the runtime "
                        "again, nothing is lost",
                    ) from error
                time.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")


def open_remote(uri: str) -> Remote:
    """The store that ``uri`` names, such as ``s3://bucket/prefix?region=eu-west-1``; nothing is
    read yet.

    Raises:
        PipelineError: ``bad-object-store``: it names none, or one of an unknown kind.
    """
    try:
        files, base = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError, TypeError) as cause:
        raise _bad(uri, str(cause)) from cause
    if files.type_name not in (*_ATOMIC, *_MOVING):
        raise _bad(uri, f"in a file system of kind {files.type_name!r} no write is atomic")
    if not base.strip("/"):
        raise _bad(uri, "it names no bucket or folder")
    return Remote(uri, files, base)


def _bad(uri: str, why: str) -> PipelineError:
    parts = urlsplit(uri)
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}" if parts.scheme else parts.path
    # A parser that complains quotes what it was given.
    why = why.replace(uri, shown)
    return PipelineError(
        "bad-object-store",
        f"{shown!r} is no object store: {why}",
        field="object_store",
        remedy="give an address such as s3://bucket/prefix?region=eu-west-1, gs://bucket/prefix "
        "or file:///path",
    )


class _HereError(Exception):
    """A file of this machine can't be written, of which the store knows nothing."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextlib.contextmanager
def _here() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _HereError(error) from error


def _copy(source: pa.NativeFile, sink: pa.NativeFile) -> None:
    while block := source.read(BLOCK):
        sink.write(block)


def _sync(file: Path) -> None:
    number = os.open(file, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)

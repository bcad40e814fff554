"""An object store through ``obstore``: objects below one prefix of S3, of GCS or of a directory.

Objects appear atomically. Two drivers may run for one pipeline: perhaps one was started by mistake,
or was suspended and resumed, or has a wrong clock. So a driver may replace an object only if it has
the version that the driver has read, and create an object only if it is missing
(:meth:`Remote.replace`), by ``If-Match`` and ``If-None-Match`` of S3 and GCS. In a directory this
is done under a lock; an object is written to a temporary file, synced and renamed.

A failed call is retried a few times, unless the store refused it; then an error names the object
and the remedy.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import GCSStore, LocalStore, ObjectStore, S3Store

from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.storage.documents import sync_path
from anabranch_runtime.storage.leftovers import ListedFile

T = TypeVar("T")


#: Seconds between attempts, in addition to the client's own retries within each attempt.
PAUSES = (0.1, 0.5, 2.0)
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
#: Maximum bytes of a request, so that no request takes longer than half a minute.
BLOCK = 1 << 23
#: Suffix of incomplete files.
_PARTIAL = ".partial"
#: Texts in errors that are not retried, since the store refuses the call; and such codes of disks.
_REFUSALS = ("403 Forbidden", "401 Unauthorized", "ExpiredToken", "InvalidToken", "NoSuchBucket")
_REFUSED = (errno.ENOSPC, errno.EROFS, errno.EDQUOT)
#: Codes of errors of the object store itself, as opposed to its contents.
UNAVAILABLE = ("store-unreachable", "store-refused")


class ChangedError(Exception):
    """Compare-and-swap has failed: the object's version is not the expected one."""


class Version(NamedTuple):
    """Version of an object's content: the service's tag and number, or the digest of a file."""

    tag: str | None
    number: str | None = None


@dataclass(frozen=True, slots=True)
class Remote:
    """The objects of an object store; names are relative to its prefix, with slashes.

    Attributes:
        uri: address with which other processes open the store; may contain credentials.
        where: description of the store for messages, without credentials.
        folder: the store's directory; None: it is not a directory.
    """

    uri: str
    where: str
    store: ObjectStore
    prefix: str
    folder: Path | None = None

    def put(self, name: str, content: bytes | Path) -> None:
        """Write bytes or a file to the object ``name``; return once it is durable."""
        self._attempt("written", name, lambda: self._write(name, content))

    def replace(self, name: str, content: bytes, known: Version | None) -> Version:
        """Write ``content`` to ``name`` if it has the version ``known`` (None: does not exist).

        Raises:
            ChangedError: the object has another version, with other content.
        """
        replace = self._replace if self.folder is None else self._replace_file
        return self._attempt("written", name, lambda: replace(name, content, known))

    def read(self, name: str) -> tuple[bytes, Version] | None:
        """Return the content and the version of the object ``name``; None if it does not exist."""
        return self._attempt("read", name, lambda: self._read(name))

    def get(self, name: str) -> bytes | None:
        """Return the content of the object ``name``; None if it does not exist."""
        found = self.read(name)
        return None if found is None else found[0]

    def download(self, name: str, file: Path) -> None:
        """Write the content of the object ``name`` to ``file``.

        Raises:
            FileNotFoundError: ``name`` does not exist.
            OSError: ``file`` can't be written.
        """
        size = self.size(name)
        if size is None:
            raise FileNotFoundError(name)
        with file.open("wb") as sink:
            for start in range(0, size, BLOCK):
                sink.write(self.part(name, start, min(BLOCK, size - start)))

    def part(self, name: str, offset: int, length: int) -> bytes:
        """Return ``length`` bytes (at the end fewer) of the object ``name``, from ``offset`` on.

        Raises:
            FileNotFoundError: ``name`` does not exist.
        """
        path = self._path(name)
        return self._attempt(
            "read",
            name,
            lambda: bytes(obstore.get_range(self.store, path, start=offset, length=length)),
        )

    def size(self, name: str) -> int | None:
        """Return the size in bytes of the object ``name``; None if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            return self._attempt(
                "read", name, lambda: obstore.head(self.store, self._path(name))["size"]
            )
        return None

    def names(self) -> dict[str, int]:
        """Return name -> size in bytes, of every object."""
        return {one.name: one.size for one in self.listed()}

    def listed(self, folder: str = "") -> list[ListedFile]:
        """List the objects whose names begin with ``folder``, which must end with a slash."""
        place = self._path(folder).rstrip("/")
        found = self._attempt(
            "listed", folder, lambda: list(obstore.list(self.store, place).collect())
        )
        return [
            ListedFile(
                one["path"].removeprefix(self._path("")),
                one["size"],
                one["last_modified"].timestamp(),
            )
            for one in found
            if _PARTIAL not in one["path"]
        ]

    def delete(self, name: str) -> None:
        """Delete the object ``name`` if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._attempt("deleted", name, lambda: obstore.delete(self.store, self._path(name)))

    def _path(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def _read(self, name: str) -> tuple[bytes, Version] | None:
        try:
            found = obstore.get(self.store, self._path(name))
            content = bytes(found.bytes())
        except FileNotFoundError:
            return None
        return content, _version(found.meta) if self.folder is None else _digest(content)

    def _write(self, name: str, content: bytes | Path) -> None:
        if self.folder is None:
            obstore.put(self.store, self._path(name), content)
            return
        final = self.folder / name
        partial = final.with_name(f"{final.name}.{uuid.uuid4().hex}{_PARTIAL}")
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                if isinstance(content, Path):
                    with content.open("rb") as source:
                        shutil.copyfileobj(source, file)
                else:
                    file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(final)
        finally:
            partial.unlink(missing_ok=True)
        sync_path(final.parent)

    def _replace(self, name: str, content: bytes, known: Version | None) -> Version:
        """Replace an object by a conditional request. If its answer is lost, the request may have
        succeeded: then ``content`` in the object counts as success."""
        mode: Any = "create"
        if known is not None:
            given = (("e_tag", known.tag), ("version", known.number))
            mode = {name: value for name, value in given if value is not None}
        try:
            return _version(obstore.put(self.store, self._path(name), content, mode=mode))
        except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
            there = self._read(name)
            if there is not None and there[0] == content:
                return there[1]
            raise ChangedError(name) from error

    def _replace_file(self, name: str, content: bytes, known: Version | None) -> Version:
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        number = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            there = self._read(name)
            if there is None or there[0] != content:
                if (None if there is None else there[1]) != known:
                    raise ChangedError(name)
                self._write(name, content)
        finally:
            os.close(number)
        return _digest(content)

    def _attempt(self, verb: str, name: str, call: Callable[[], T]) -> T:
        """Return the result of ``call`` to the object store, retried a few times after ``OSError``.

        Raises:
            StateError: ``store-refused``, ``store-unreachable``.
        """
        for pause in (*PAUSES, None):
            try:
                with _errors():
                    return call()
            except OSError as error:
                if isinstance(error, FileNotFoundError) and verb != "written":
                    raise
                message = f"{self.where}/{name} can't be {verb}: {error}"
                refused = isinstance(error, PermissionError | FileNotFoundError)
                refused = refused or error.errno in _REFUSED
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
                        remedy="make sure that the object store answers, and start the runtime "
                        "again, nothing is lost",
                    ) from error
                time.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")


def open_remote(uri: str) -> Remote:
    """Open the store at ``uri``, e.g. ``s3://bucket/prefix?region=eu-west-1``, without reading it.

    Raises:
        PipelineError: ``bad-object-store``: the address is malformed or of an unknown kind.
    """
    try:
        parts = urlsplit(uri)
        name, path = parts.hostname or "", unquote(parts.path).strip("/")
        options = dict(parse_qsl(parts.query))
        if parts.scheme == "s3" and name:
            return Remote(uri, f"s3:{name}/{path}", _s3(parts, options), path)
        if options:
            raise ValueError(f"it has no option {min(options)}")
        if parts.scheme in ("gs", "gcs") and name:
            store: ObjectStore = GCSStore(name, retry_config=_RETRIES)
            return Remote(uri, f"gcs:{name}/{path}", store, path)
        if parts.scheme in ("file", "") and parts.path.startswith("/") and path:
            return Remote(uri, f"local:/{path}", LocalStore(), path, Path("/", path))
    except (ValueError, BaseError) as cause:
        raise _bad(uri, str(cause)) from cause
    raise _bad(uri, "it names no bucket or folder")


def _s3(parts: SplitResult, options: Mapping[str, str]) -> ObjectStore:
    known = ("region", "scheme", "endpoint_override")
    if others := options.keys() - {*known}:
        raise ValueError(f"it has no option {min(others)}, only {', '.join(known)}")
    config = dict[str, Any]()
    if parts.username and parts.password:
        config["access_key_id"] = unquote(parts.username)
        config["secret_access_key"] = unquote(parts.password)
    if "region" in options:
        config["region"] = options["region"]
    scheme = options.get("scheme", "https")
    if "endpoint_override" in options:
        config["endpoint"] = f"{scheme}://{options['endpoint_override']}"
    return S3Store(
        parts.hostname or "",
        config=cast("Any", config),
        client_options={"allow_http": scheme == "http"},
        retry_config=_RETRIES,
    )


def _bad(uri: str, why: str) -> PipelineError:
    parts = urlsplit(uri)
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}" if parts.scheme else parts.path
    # A parser's message may quote the address: mask its credentials.
    why = why.replace(uri, shown)
    return PipelineError(
        "bad-object-store",
        f"{shown!r} is not an object store: {why}",
        field="object_store",
        remedy="give an address such as s3://bucket/prefix?region=eu-west-1, gs://bucket/prefix "
        "or file:///path",
    )


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Convert the object store library's errors to ``OSError`` and subclasses."""
    try:
        yield
    except BaseError as error:
        refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        # Cut off the library's internal representation of the error.
        message = str(error).split("\n\nDebug source")[0]
        raise (PermissionError if refused else OSError)(message) from error


def _version(found: Mapping[str, Any]) -> Version:
    return Version(found.get("e_tag"), found.get("version"))


def _digest(content: bytes) -> Version:
    return Version(hashlib.sha256(content).hexdigest())

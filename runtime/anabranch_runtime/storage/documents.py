"""Documents on disk: written atomically and durably, with a checksum that reveals any damage.

A document is one JSON object, ``{"version": v, "crc": c, "<key>": body}``; ``c`` is the CRC-32 of
the version and of the body in canonical form (sorted keys, no blanks), so a flipped bit of either
is detected. A document is written to a temporary file, synced and renamed, and its directory is
synced. So after a power failure the name leads to the old document or to the new one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch_contract.codec import to_json
from anabranch_runtime.errors import StateError

#: Beginning of every document, up to its body; greatest length of this beginning.
_HEAD = re.compile(rb'\{"version":(?P<version>\d+),"crc":(?P<crc>\d+),"[^"]*":')
_LONGEST_HEAD = 128
_ENCODER = json.JSONEncoder(default=to_json, separators=(",", ":"), sort_keys=True)
_LIBRARY = ctypes.CDLL(None, use_errno=True)
#: Linux's ``syncfs``; None on other systems, where all file systems are synced instead.
_SYNCFS = getattr(_LIBRARY, "syncfs", None)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document.

    Attributes:
        noun: name of the kind in messages and error codes.
        key: key of the body in the JSON object.
        version: the only version that is written and read.
    """

    noun: str
    key: str
    version: int = 1

    def crc(self, body: bytes) -> int:
        """Return the checksum of a document's version and its body's canonical text."""
        return zlib.crc32(body, zlib.crc32(str(self.version).encode()))

    def spelled(self, body: Any) -> str:
        """Return the complete text of a document with this body."""
        text = canonical(body)
        return f"{self.head(self.crc(text.encode())).decode()}{text}}}"

    def head(self, crc: int) -> bytes:
        """Return the beginning of a document, up to its body, whose checksum is ``crc``."""
        return f'{{"version":{self.version},"crc":{crc},"{self.key}":'.encode()


def at_once() -> None:
    """Default of ``ready``: do nothing, as nothing must be durable before the document."""


def write_document(
    path: Path, kind: Kind, body: Any, ready: Callable[[], object] = at_once
) -> None:
    """Write or replace the document at ``path``, durably; ``ready`` as in :func:`write_durably`."""
    write_durably(path, kind.spelled(body), ready)


def read_document(path: Path, kind: Kind) -> Any:
    """Return the body of the document at ``path``.

    Raises:
        StateError: ``damaged-<noun>``; or ``unknown-version``: it is of another release.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
        written = document["version"]
        # Documents of another version may have another key for the body.
        body = document[kind.key] if written == kind.version else None
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise StateError(
            f"damaged-{kind.noun}", f"{path} is not a {kind.noun}: {_said(cause)}"
        ) from cause
    if written != kind.version:
        raise unknown_version(path, written, kind.version)
    if text != kind.spelled(body):
        raise StateError(f"damaged-{kind.noun}", f"{path} does not match its checksum")
    return body


def read_text(path: Path, kind: Kind) -> str:
    """Return the text of the body of the document at ``path`` as it is in the file.

    Raises:
        StateError: as :func:`read_document`.
    """
    try:
        return read_exactly(path, kind, checksum(path)).decode()
    except (OSError, ValueError) as cause:
        read_document(path, kind)
        raise StateError(f"damaged-{kind.noun}", f"{path} is not a {kind.noun}: {cause}") from cause


def checksum(path: Path) -> int:
    """Return the checksum in the document at ``path``, without comparison with the body.

    Raises:
        OSError: the file can't be read.
        ValueError: the file is not a document.
    """
    with path.open("rb") as file:
        found = _HEAD.match(file.read(_LONGEST_HEAD))
    if found is None:
        raise ValueError(f"{path} is not a document")
    return int(found["crc"])


def read_exactly(path: Path, kind: Kind, crc: int) -> bytes:
    """Return the text of the body of the document at ``path``, which must have the version of
    ``kind`` and the checksum ``crc``.

    Raises:
        OSError: the file can't be read.
        ValueError: the document has another version or checksum, or is damaged.
    """
    text, head = path.read_bytes(), kind.head(crc)
    body = text[len(head) : -1]
    if not text.startswith(head):
        raise ValueError(f"{path} has another {kind.noun}")
    if not text.endswith(b"}") or kind.crc(body) != crc:
        raise ValueError(f"{path} does not match its checksum")
    return body


@dataclass(frozen=True, slots=True)
class Spelling:
    """Canonical JSON text of a value, which :func:`canonical` uses instead of encoding it."""

    text: str


def canonical(body: Any) -> str:
    """Return canonical JSON text of a value, for checksums; dataclasses become objects."""
    if isinstance(body, Spelling):
        return body.text
    return _ENCODER.encode(body)


def write_durably(path: Path, text: str, ready: Callable[[], object] = at_once) -> None:
    """Replace the file at ``path`` atomically; return once content and name are durable.

    Args:
        ready: called before the file gets its name; if ``ready`` fails, it does not get the name.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        ready()
        partial.rename(path)
    except OSError:
        # Delete the partial file, which would take up space on a full disk.
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Make a file's content, or the names in a directory, durable; a rename needs the latter."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def unknown_version(path: object, written: object, version: int) -> StateError:
    """Return the error for a file in ``path`` of another format version than ``version``."""
    return StateError(
        "unknown-version",
        f"{path} has version {written!r}, not {version}",
        remedy="start the release that wrote the state, or begin with an empty state directory",
    )


def _said(cause: Exception) -> str:
    return f"no {cause}" if isinstance(cause, KeyError) else str(cause)


def sync_filesystem(path: Path) -> None:
    """Wait until all files and names written to the file system of ``path`` are on the disk.

    One call per batch is faster than a call per file: for a hundred small files on a busy disk, it
    took 25 ms instead of 900 ms for all files and folders.

    Raises:
        OSError: a write failed.
    """
    if _SYNCFS is None:
        os.sync()
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        if _SYNCFS(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(handle)

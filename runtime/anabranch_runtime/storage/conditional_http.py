"""Objects of S3 and GCS that change only as they were read (``conditional``), by ``obstore``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from obstore import get, put
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import GCSStore, S3Store

from anabranch_runtime.storage.conditional import ChangedError, Version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Objects:
    """In an object store, below a prefix."""

    store: ObjectStore
    prefix: str

    def read(self, name: str) -> tuple[bytes, Version] | None:
        """As in :class:`Conditional`."""
        try:
            found = get(self.store, self._path(name))
            content = bytes(found.bytes())
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise _failed(error) from error
        return content, _version(found.meta)

    def put(self, name: str, content: bytes, known: Version | None) -> Version:
        """As in :class:`Conditional`. A request whose answer was lost has written ``content``: who
        finds that there has written it.
        """
        mode: Any = "create"
        if known is not None:
            given = (("e_tag", known.tag), ("version", known.number))
            mode = {name: value for name, value in given if value is not None}
        try:
            return _version(put(self.store, self._path(name), content, mode=mode))
        except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
            there = self.read(name)
            if there is not None and there[0] == content:
                return there[1]
            raise ChangedError(name) from error
        except BaseError as error:
            raise _failed(error) from error

    def _path(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name


def open_objects(uri: str) -> Objects:
    """The store of an address in S3 or GCS."""
    parts = urlsplit(uri)
    store = _s3(parts) if parts.scheme == "s3" else GCSStore(parts.hostname or "")
    return Objects(store, unquote(parts.path).strip("/"))


def _s3(parts: SplitResult) -> ObjectStore:
    """By the options that ``pyarrow.fs`` takes."""
    options, config = dict(parse_qsl(parts.query)), dict[str, Any]()
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
    )


def _failed(error: BaseError) -> OSError:
    refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    # What follows is the library's own view of it.
    return (PermissionError if refused else OSError)(str(error).split("\n\nDebug source")[0])


def _version(found: Mapping[str, Any]) -> Version:
    return Version(found.get("e_tag"), found.get("version"))

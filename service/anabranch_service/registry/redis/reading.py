"""Replies of Redis, read as records and validated."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar, cast

import structlog
from pydantic import BaseModel, ValidationError

from anabranch_contract import codec
from anabranch_contract.packed import unpack
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary
from anabranch_service.errors import CorruptRecord

_T = TypeVar("_T")
_R = TypeVar("_R", bound=BaseModel)

_LOG = structlog.get_logger(__name__)


def read_boundary(text: str) -> Boundary:
    """Parse ``text`` as a boundary; :class:`CorruptRecord` if it is invalid."""
    return checked(Boundary, "boundary", text)


def read_snapshot(boundary: Boundary) -> Snapshot | None:
    """Return the statistics of ``boundary``, if any; raise :class:`CorruptRecord` if unreadable."""
    if boundary.snapshot is None:
        return None
    try:
        return codec.loads(boundary.snapshot, Snapshot)
    except codec.Malformed as cause:
        raise _corrupt(f"statistics of epoch {boundary.epoch}", cause) from cause


async def reply(response: Awaitable[Any] | Any, kind: type[_T]) -> _T:
    """Await a redis-py answer, whose declared type covers the synchronous client as well."""
    return cast("_T", await response)


async def reply_text(response: Awaitable[Any] | Any) -> str | None:
    """Await an answer that is a text or None."""
    return cast("str | None", await response)


async def reply_record(kind: type[_T], name: str, response: Awaitable[Any] | Any) -> _T | None:
    """Await a record; None if it is missing or unreadable, which is logged."""
    return lenient(kind, name, await reply_text(response))


def unpacked(text: str | None) -> str | None:
    """Unpack a text if it is compressed; a damaged one is returned as it is, and fails to parse."""
    try:
        return None if text is None else unpack(text)
    except ValueError:
        return text


def checked(kind: type[_T], name: str, text: str) -> _T:
    """Parse the record in ``text``; :class:`CorruptRecord` if it is invalid."""
    try:
        if issubclass(kind, BaseModel):
            return kind.model_validate_json(text)
        return codec.loads(text, kind)
    except (ValidationError, codec.Malformed) as cause:
        raise _corrupt(name, cause) from cause


def strict(kind: type[_R], name: str, text: str | None) -> _R | None:
    """Parse ``text``, or return None without a text; :class:`CorruptRecord` if it is invalid."""
    return None if text is None else checked(kind, name, text)


def lenient(kind: type[_T], name: str, text: str | None) -> _T | None:
    """As :func:`checked`, but None if invalid: one bad record must not hide the others."""
    try:
        return None if text is None else checked(kind, name, text)
    except CorruptRecord as cause:
        _LOG.error("unreadable record", record=name, reason=cause.message)
        return None


def readable(kind: type[_T], name: str, texts: Iterable[str]) -> list[_T]:
    """Return the records in ``texts``; unreadable ones are logged and left out."""
    return [one for one in (lenient(kind, name, text) for text in texts) if one is not None]


def _corrupt(name: str, cause: ValidationError | codec.Malformed) -> CorruptRecord:
    reason = str(cause)
    if isinstance(cause, ValidationError):
        first = cause.errors(include_url=False, include_context=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc'])) or 'document'}: {first['msg']}"
    return CorruptRecord(
        "corrupt-record",
        f"the record {name!r} in Redis can't be read: {reason}",
        remedy="another program, or a newer service, wrote to this namespace",
    )


def stream_entries(answer: Any) -> list[tuple[str, dict[str, str]]]:
    """Return entries in a reply to XREAD for one stream, in version 2 or 3 of Redis's protocol."""
    if not answer:
        return []
    if isinstance(answer, dict):
        found = next(iter(answer.values()))
        return cast("list[tuple[str, dict[str, str]]]", found[0] if found else [])
    return cast("list[tuple[str, dict[str, str]]]", answer[0][1])

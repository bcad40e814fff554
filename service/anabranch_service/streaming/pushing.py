"""Pushes of rows to a stream: repeated requests, and requests faster than rows are read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fastapi import Header

from anabranch_contract.protocol.intake import StreamIntake
from anabranch_service.errors import Conflict, ServiceError
from anabranch_service.registry.redis.streams import StreamStore

#: Number of a stream's unread rows from which on no more rows are accepted.
MOST_WAITING = 1_000_000
#: Seconds after which a client may try again.
_PAUSE = 5

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=256,
        description="Requests with the same key and body get the same answer for a day.",
    ),
]


class Backlogged(ServiceError):
    """Rows for a stream with too many unread rows."""

    status = 429
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": str(_PAUSE)}


@dataclass(frozen=True, slots=True)
class Pushed:
    """Entries with the rows of a request for ``stream``, and the Redis Stream that gets them."""

    stream: str
    key: str
    entries: list[dict[str, Any]]


def check_backlog(name: str, intake: StreamIntake | None) -> None:
    """Refuse rows for a stream with too many unread rows; ``intake``: None if unknown.

    Raises:
        Backlogged: naming the number of waiting rows.
    """
    if intake is not None and intake.waiting >= MOST_WAITING:
        raise Backlogged(
            "stream-behind",
            f"{intake.waiting} rows of stream {name!r} wait to be read",
            field="name",
            remedy="send the rows again after the seconds in Retry-After",
        )


async def append(
    store: StreamStore, pushed: Pushed, body: bytes, idempotency_key: str | None
) -> dict[str, str]:
    """Append the entries of a request unless it repeats another one; return headers of the answer.

    Args:
        body: body of the request; equal bodies with one idempotency key make a repeated request.

    Raises:
        Conflict: the key was used with another body.
    """
    once = ("", "")
    if idempotency_key is not None:
        once = f"{pushed.stream}:{idempotency_key}", hashlib.sha256(body).hexdigest()
    seen = await store.push(pushed.key, pushed.entries, *once)
    if seen and seen != once[1]:
        raise reused()
    return {"Idempotency-Replayed": "true"} if seen else {}


def reused() -> Conflict:
    """Return the error for a key that was used with another body."""
    return Conflict(
        "idempotency-key-reused",
        "this Idempotency-Key was used with another body",
        field="Idempotency-Key",
        remedy="use a new key for a new request",
    )

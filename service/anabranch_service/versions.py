"""Versions of streams, queries and settings: named by ETag, required by If-Match.

An ETag covers only the fields that clients set, not the counts and states in the same answer:
these change all the time, without conflict with any request.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from pydantic import BaseModel

from anabranch_contract.plans.ruleset import digest
from anabranch_service.errors import ServiceError

IfMatch = Annotated[
    str | None,
    Header(
        max_length=1024,
        description="The ETag of the version that this request is about; `*`: any. "
        "If it has changed since, the answer is 412 and nothing is changed.",
    ),
]


#: Fields of records that the service computes itself, and that are no part of ETags.
_FOUND = {"normalised", "relaxed", "sharing_decided", "rejected", "first_epoch", "last_epoch"}


class Outdated(ServiceError):
    """The request's If-Match names an outdated version of the stream, query or settings."""

    status = 412


def etag(record: BaseModel) -> str:
    """Return the ETag of a record."""
    return tag(digest(record.model_dump_json(exclude=_FOUND)))


def tag(version: str) -> str:
    """Return ``version`` quoted as an ETag."""
    return f'"{version}"'


def check_version(record: BaseModel, wanted: str | None) -> None:
    """Refuse a request whose If-Match excludes the version ``record``; see :func:`check_tag`."""
    if wanted is not None:
        check_tag(etag(record), wanted)


def check_tag(newest: str, wanted: str | None) -> None:
    """Refuse a request whose If-Match header does not match the current ETag ``newest``.

    Args:
        wanted: the If-Match header; None: the request has none.

    Raises:
        Outdated: ``changed-meanwhile``.
    """
    if wanted is None or newest in (known := [one.strip() for one in wanted.split(",")]):
        return
    if known != ["*"]:
        raise Outdated(
            "changed-meanwhile",
            "it is no longer the version that If-Match names",
            field="If-Match",
            remedy="send GET again, and use the ETag of its answer",
        )

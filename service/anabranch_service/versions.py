"""Versions of what is registered: an ETag names one, and If-Match asks for it.

An ETag is of what was registered or set, not of what an answer says beside it: counts and states
change all the time, and nobody's change contradicts them.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import Header
from pydantic import BaseModel

from anabranch_service.errors import ServiceError

IfMatch = Annotated[
    str | None,
    Header(
        max_length=1024,
        description="The ETag of the version that this request is about; `*`: any. "
        "If it has changed since, the answer is 412 and nothing is changed.",
    ),
]


#: Fields that the service works out, of any record.
_FOUND = {"normalised", "relaxed", "rejected", "first_epoch", "last_epoch"}


class Outdated(ServiceError):
    """The request is about a version that is no longer there."""

    status = 412


def etag(record: BaseModel) -> str:
    """The ETag of a record."""
    text = record.model_dump_json(exclude=_FOUND)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"'


def check_version(record: BaseModel, wanted: str | None) -> None:
    """Refuse a request for another version than ``record``.

    Args:
        wanted: the If-Match header; None: there is none.

    Raises:
        Outdated: ``changed-meanwhile``.
    """
    if wanted is None or etag(record) in (known := [one.strip() for one in wanted.split(",")]):
        return
    if known != ["*"]:
        raise Outdated(
            "changed-meanwhile",
            "it is no longer the version that If-Match names",
            field="If-Match",
            remedy="GET it again, and send the ETag of that answer",
        )

"""Errors of the service: each names an HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from anabranch_contract.errors import StructuredError


class ServiceError(StructuredError):
    """A request that can't be served.

    Attributes:
        status: the HTTP status of the answer.
        headers: further headers of the answer.
    """

    status = 500
    headers: ClassVar[Mapping[str, str]] = {}


class InvalidInput(ServiceError):
    """Well-formed input that means nothing."""

    status = 422


class NotFound(ServiceError):
    """No such resource."""

    status = 404


def unknown(kind: Literal["stream", "query"], name: str) -> NotFound:
    """The error for a stream or query that is not registered."""
    return NotFound(
        f"unknown-{kind}",
        f"there is no {kind} {name!r}",
        field="name" if kind == "stream" else "id",
        remedy=f"GET /v1/{'streams' if kind == 'stream' else 'queries'} lists them",
    )


class Conflict(ServiceError):
    """The request contradicts what is registered."""

    status = 409


class Busy(ServiceError):
    """More is asked for than this process serves at a time."""

    status = 503


class CorruptRecord(ServiceError):
    """Redis holds something that this service can't read."""

    status = 500


class SettingsError(ServiceError):
    """The process was started with settings it can't use."""

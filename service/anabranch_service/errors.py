"""Errors of the service: each names an HTTP status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

from anabranch_contract.errors import StructuredError

T = TypeVar("T")


class ServiceError(StructuredError):
    """A request that can't be served.

    Attributes:
        status: the HTTP status of the answer.
        headers: further headers of the answer.
    """

    status = 500
    headers: ClassVar[Mapping[str, str]] = {}


class InvalidInput(ServiceError):
    """Well-formed input with an invalid meaning."""

    status = 422


class SeveralInvalid(InvalidInput):
    """Well-formed input with several invalid parts, or conflicts with registered objects.

    Attributes:
        errors: each names its field.
    """

    def __init__(self, errors: Sequence[StructuredError]) -> None:
        first, more = errors[0], len(errors) - 1
        message = f"{first.field}: {first.detail}" + (f" (and {more} more)" if more else "")
        super().__init__(first.code, message, field=first.field, remedy=first.remedy)
        self.errors = tuple(errors)


class NotFound(ServiceError):
    """No such resource."""

    status = 404


class Unknown(NotFound):
    """No object has this name.

    Attributes:
        kind: kind of the object, e.g. ``"query"``.
        name: the name given.
    """

    kind: str = ""
    name: str = ""


class Conflict(ServiceError):
    """The request conflicts with registered objects."""

    status = 409


class Busy(ServiceError):
    """More requests than this process serves at a time."""

    status = 503


class CorruptRecord(ServiceError):
    """A value in Redis that this service can't read."""

    status = 500


class SettingsError(ServiceError):
    """The process was started with settings that it can't use."""


#: Kind of resource -> the request field with its name, and the route that lists such resources.
_KINDS = {
    "stream": ("name", "streams"),
    "query": ("name", "queries"),
    "family": ("family", "families"),
    "token": ("ident", "tokens"),
    "function": ("name", "functions"),
}


def known(found: T | None, kind: str, name: str) -> T:
    """Return the resource ``found``, of type ``kind`` and called ``name``, unless it is None.

    Raises:
        Unknown: ``unknown-<kind>``, if ``found`` is None.
    """
    if found is None:
        raise unknown(kind, name)
    return found


def unknown(kind: str, name: str, meant: str = "") -> Unknown:
    """Return the error for a name that no object of type ``kind`` has; ``meant``: begin of its
    remedy."""
    field, route = _KINDS[kind]
    error = Unknown(
        f"unknown-{kind}",
        f"there is no {kind} {name!r}",
        field=field,
        remedy=f"{meant}GET /v1/{route} lists them",
    )
    error.kind, error.name = kind, name
    return error

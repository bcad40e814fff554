"""Errors of the service: one base class; each names an HTTP status and says what to do."""

from __future__ import annotations


class ServiceError(Exception):
    """A request that can't be served: what is wrong, where, and what to do about it.

    Attributes:
        status: the HTTP status of the answer.
        code: stable machine-readable kind, e.g. ``"duplicate-query"``.
        message: what is wrong (one sentence).
        field: the input field the complaint is about; empty if none.
        remedy: what the caller can do.
    """

    status = 500

    def __init__(self, code: str, message: str, *, field: str = "", remedy: str = "") -> None:
        super().__init__(code, message, field, remedy)
        self.code = code
        self.message = message
        self.field = field
        self.remedy = remedy

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        hint = f" ({self.remedy})" if self.remedy else ""
        return f"{where}{self.message}{hint}"


class InvalidInput(ServiceError):
    """Well-formed input that means nothing."""

    status = 422


class NotFound(ServiceError):
    """No such resource."""

    status = 404


class Conflict(ServiceError):
    """The request contradicts what is registered."""

    status = 409


class CorruptRecord(ServiceError):
    """Redis holds something that this service can't read."""

    status = 500


class SettingsError(ServiceError):
    """The process was started with settings it can't use."""

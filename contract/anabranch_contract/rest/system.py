"""Bodies of health checks, and of every error."""

from __future__ import annotations

from typing import Literal

from anabranch_contract.rest.documents import Document


class Health(Document):
    """The process is up."""

    status: Literal["ok"] = "ok"


class Ready(Document):
    """Whether requests are served and epochs planned; ``checks`` says what is missing."""

    status: Literal["ready"]
    checks: dict[str, str]


class FieldError(Document):
    """One complaint about one input field; in a statement, where in it (both from 1)."""

    field: str
    code: str
    message: str
    line: int | None = None
    column: int | None = None


class Problem(Document):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[FieldError] | None = None
    remedy: str | None = None

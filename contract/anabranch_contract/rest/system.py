"""Bodies of health checks, of ``/v1/health``, and of every error."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anabranch_contract.rest.documents import Document, Open, Time


class Health(Document):
    """The process is up."""

    status: Literal["ok"] = "ok"


class Ready(Document):
    """Whether requests are served and epochs planned; ``checks`` names the missing parts."""

    status: Literal["ready"]
    checks: dict[str, str]


class LeaderOut(Document):
    """The service, among several, that plans and publishes."""

    leads: bool = Field(
        default=False,
        description="Whether its lease is good. If not, another service takes over at any moment.",
    )
    address: str | None = Field(
        default=None,
        description="Host name, address and port of the present or last leader; null: none.",
    )
    since: Time | None = Field(default=None, description="When its term began.")
    token: int | None = Field(
        default=None, description="The number of its term: each is greater than those before."
    )
    is_this: bool = Field(default=False, description="Whether it is the service that answers.")
    lease_seconds: float = Field(description="After how long of silence another takes over.")


class FieldError(Document):
    """An error in one input field; for a statement with line and column, both from 1."""

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


class ComponentOut(Document):
    """A part of the system, and how it is.

    ``failed``: it does not do its work. ``warning``: it does, but not as it should. ``since`` is
    when the service has first seen it so; of a source when the runtime has. ``message`` says what
    is wrong, ``remedy`` what to do.
    """

    kind: Open[
        Literal[
            "service", "redis", "epoch loop", "plan", "runtime", "stream", "query", "completeness"
        ]
    ]
    name: str
    state: Open[Literal["ok", "warning", "failed"]]
    since: Time
    message: str = ""
    remedy: str = ""


class HealthOut(Document):
    """All components, failed ones and warnings first."""

    components: list[ComponentOut]

"""Bodies of health checks, of ``/v1/health``, and of every error."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anabranch_contract.rest.documents import Document, Open, Time


class Health(Document):
    """Answer of the liveness check: the process serves requests."""

    status: Literal["ok"] = "ok"


class Ready(Document):
    """Answer of the readiness check; ``checks`` maps each checked component to ``ok``."""

    status: Literal["ready"]
    checks: dict[str, str]


class LeaderOut(Document):
    """The leader: the one of several services that plans and publishes."""

    leads: bool = Field(
        default=False,
        description="Whether its lease is valid. If not, another service is about to take over.",
    )
    address: str | None = Field(
        default=None,
        description="Host name, address and port of the present or last leader; null: none.",
    )
    since: Time | None = Field(default=None, description="When its term began.")
    token: int | None = Field(
        default=None, description="Fencing token of its term, greater than all earlier ones."
    )
    is_this: bool = Field(default=False, description="Whether it is the service that answers.")
    lease_seconds: float = Field(description="Silence after which another service takes over.")


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
    """Health of one component: ``ok``, ``warning`` (it works, with a problem) or ``failed``.

    ``since`` is the time at which the service (for a source, the runtime) first saw this state,
    ``message`` the problem, ``remedy`` the operator's next step.
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

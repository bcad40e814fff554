"""Bodies of health checks, of ``/v1/health``, and of every error."""

from __future__ import annotations

from typing import Literal

from anabranch_contract.rest.documents import Document, Open, Time


class Health(Document):
    """Answer of the liveness check: the process serves requests.

    Attributes:
        status: always ``ok``.
    """

    status: Literal["ok"] = "ok"


class Ready(Document):
    """Answer of the readiness check.

    Attributes:
        status: always ``ready``.
        checks: component -> ``ok``.
    """

    status: Literal["ready"]
    checks: dict[str, str]


class LeaderOut(Document):
    """The leader: the one of several services that plans and publishes.

    Attributes:
        leads: whether its lease is valid. If not, another service is about to take over.
        address: host name, address and port of the present or last leader; null: none.
        since: time at which its term began.
        token: fencing token of its term, greater than all earlier ones.
        is_this: whether it is the service that answers.
        lease_seconds: seconds of silence after which another service takes over.
    """

    leads: bool = False
    address: str | None = None
    since: Time | None = None
    token: int | None = None
    is_this: bool = False
    lease_seconds: float


class FieldError(Document):
    """An error in one input field.

    Attributes:
        field: path of the field, such as ``columns.2.type``.
        code: code of the error.
        message: the fault, as a sentence.
        line: line of the error in an SQL statement, from 1; null: no position.
        column: column of the error in that line, from 1; null: no position.
    """

    field: str
    code: str
    message: str
    line: int | None = None
    column: int | None = None


class Problem(Document):
    """Problem details (RFC 9457).

    Attributes:
        type: URN of the code, ``urn:anabranch:problem:CODE``.
        title: the code in words.
        status: HTTP status of the answer.
        detail: the fault, as a sentence.
        instance: path of the request.
        code: code of the error (``docs/errors.md``).
        errors: errors by input field; absent or null: in no field in particular.
        remedy: remedy for the fault; absent or null: unknown.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[FieldError] | None = None
    remedy: str | None = None


class ComponentOut(Document):
    """Health of one component.

    Attributes:
        kind: kind of the component.
        name: name of the component, such as that of a stream or query.
        state: ``ok``, ``warning`` (it works, with a problem) or ``failed``.
        since: time at which the service (for a source, the runtime) first saw this state.
        message: sentence about the problem; empty: none.
        remedy: the operator's next step; empty: none is needed.
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
    """Health of all components.

    Attributes:
        components: the components, failed ones and warnings first.
    """

    components: list[ComponentOut]

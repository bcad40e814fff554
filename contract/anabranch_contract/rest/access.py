"""REST bodies for access tokens and the audit log."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from anabranch_contract.rest.documents import (
    Closed,
    Document,
    Duration,
    Open,
    Time,
    examples,
    printable,
)

TokenName = Annotated[
    str, Field(min_length=1, max_length=128, examples=["ci"]), AfterValidator(printable)
]


class Role(StrEnum):
    """Role of a token; it determines which requests are allowed (``SECURITY.md``)."""

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"
    WORKER = "worker"


class TokenIn(Closed):
    """An access token to create."""

    model_config = examples({"name": "ci", "role": "editor", "ttl": "90 days"})

    name: TokenName
    role: Role
    ttl: Duration | None = Field(default=None, description="Time until it expires; default: never.")


class TokenOut(Document):
    """An access token without its secret."""

    id: str
    name: str
    role: Open[Role]
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None = Field(description="Last use, accurate to about a minute.")
    usable: bool


class TokenMade(TokenOut):
    """A new token with its secret, which no other answer contains."""

    token: str = Field(description="Send it as `Authorization: Bearer TOKEN`.")


class TokenList(Document):
    """All tokens, oldest first."""

    items: list[TokenOut]


class WhoOut(Document):
    """Identity and role of the caller."""

    token: str | None = Field(description="The token's id; null without a token.")
    name: str
    role: Open[Role]
    required: bool = Field(description="Whether this service requires tokens.")


class AuditKind(StrEnum):
    """Kinds of audit entries: changes, pushed rows, refused requests."""

    CHANGE = "change"
    PUSH = "push"
    REFUSAL = "refusal"


class AuditRecord(Closed):
    """An entry of the audit log: one request.

    Attributes:
        token, name, role: id, name and role of the caller's token; no id: no valid token.
        client: network address of the caller.
        route: template of the path, e.g. ``/v1/queries/{name}``; empty: no route matched.
        target: the requested path, percent-encoded.
        request: the request's id, also in the answer's header ``X-Request-ID``.
    """

    at: Time
    kind: Open[AuditKind]
    token: str
    name: str
    role: str
    client: str
    method: str
    route: str
    target: str
    status: int
    request: str


class AuditPage(Document):
    """A page of the audit log, newest first."""

    items: list[AuditRecord]
    next_cursor: str | None

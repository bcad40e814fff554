"""The bodies of tokens and of the audit log."""

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
    """Rights of a token."""

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"
    WORKER = "worker"


class TokenIn(Closed):
    """A token to create."""

    model_config = examples({"name": "ci", "role": "editor", "ttl": "90 days"})

    name: TokenName
    role: Role
    ttl: Duration | None = Field(
        default=None, description="After how long it expires; left out: never."
    )


class TokenOut(Document):
    """A token, without its secret."""

    id: str
    name: str
    role: Open[Role]
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None = Field(description="To about a minute.")
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
    """Kinds of entries."""

    CHANGE = "change"
    PUSH = "push"
    REFUSAL = "refusal"


class AuditRecord(Closed):
    """One request.

    Attributes:
        token, name, role: whose it was; the id is empty where there was no (known) token.
        client: address that it came from.
        route: the path's template; empty where no route was reached.
        target: the path, percent-encoded: it holds no line breaks.
        request: the id that the answer had as ``X-Request-ID``.
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

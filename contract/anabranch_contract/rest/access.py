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
    """An access token to create.

    Attributes:
        name: name of the token, for people.
        role: role of the token.
        ttl: time until it expires; default: never.
    """

    model_config = examples({"name": "ci", "role": "editor", "ttl": "90 days"})

    name: TokenName
    role: Role
    ttl: Duration | None = None


class TokenOut(Document):
    """An access token without its secret.

    Attributes:
        id: id of the token, 12 hexadecimal digits.
        name: name of the token.
        role: role of the token.
        created_at: time of its creation.
        expires_at: time of its expiry; null: never.
        revoked_at: time of its revocation; null: not revoked.
        last_used_at: time of its last use, accurate to about a minute.
        usable: whether it is neither expired nor revoked.
    """

    id: str
    name: str
    role: Open[Role]
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None
    usable: bool


class TokenMade(TokenOut):
    """A new token with its secret, which no other answer contains.

    Attributes:
        token: the token's text, sent as ``Authorization: Bearer TOKEN``.
    """

    token: str


class TokenList(Document):
    """All tokens, oldest first.

    Attributes:
        items: the tokens.
    """

    items: list[TokenOut]


class WhoOut(Document):
    """Identity and role of the caller.

    Attributes:
        token: the token's id; null without a token.
        name: name of the token; without a token ``anonymous``.
        role: role of the caller.
        required: whether this service requires tokens.
    """

    token: str | None
    name: str
    role: Open[Role]
    required: bool


class AuditKind(StrEnum):
    """Kinds of audit entries: changes, pushed rows, refused requests."""

    CHANGE = "change"
    PUSH = "push"
    REFUSAL = "refusal"


class AuditRecord(Closed):
    """An entry of the audit log: one request.

    Attributes:
        at: time of the entry.
        kind: kind of the entry: a change, pushed rows, or a refused request.
        token: id of the caller's token; empty: no valid token.
        name: name of the caller's token; empty: no valid token.
        role: role of the caller; empty: no valid token.
        client: network address of the caller.
        method: HTTP method of the request.
        route: template of the path, e.g. ``/v1/queries/{name}``; empty: no route matched.
        target: the requested path, percent-encoded.
        status: HTTP status of the answer.
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
    """A page of the audit log, newest first.

    Attributes:
        items: the entries.
        next_cursor: ``cursor`` of the next page; null: this is the last page.
    """

    items: list[AuditRecord]
    next_cursor: str | None

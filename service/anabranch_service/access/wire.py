"""The bodies of tokens and of the audit log."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field

from anabranch_service.access.audit import AuditRecord
from anabranch_service.access.roles import Role
from anabranch_service.wire.fields import Body, Duration, printable

TokenName = Annotated[
    str, Field(min_length=1, max_length=128, examples=["ci"]), AfterValidator(printable)
]


class TokenIn(Body):
    """A token to create."""

    name: TokenName
    role: Role
    ttl: Duration | None = Field(
        default=None, description="After how long it expires; left out: never."
    )


class TokenOut(BaseModel):
    """A token, without its secret."""

    id: str
    name: str
    role: Role
    created_at: AwareDatetime
    expires_at: AwareDatetime | None
    revoked_at: AwareDatetime | None
    last_used_at: AwareDatetime | None = Field(description="To about a minute.")
    usable: bool


class TokenMade(TokenOut):
    """A new token. The secret is in no other answer."""

    token: str = Field(description="Send it as `Authorization: Bearer TOKEN`.")


class TokenList(BaseModel):
    """All tokens, oldest first."""

    items: list[TokenOut]


class WhoOut(BaseModel):
    """Who the caller is."""

    token: str | None = Field(description="The token's id; null without a token.")
    name: str
    role: Role
    required: bool = Field(description="Whether this service requires tokens.")


class AuditPage(BaseModel):
    """A page of the audit log, newest first."""

    items: list[AuditRecord]
    next_cursor: str | None

"""``/v1/tokens``, ``/v1/audit``, ``/v1/whoami``: access tokens, roles and the audit log."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Path, Query, Request, Response

from anabranch_contract.rest.access import (
    AuditKind,
    AuditPage,
    TokenIn,
    TokenList,
    TokenMade,
    TokenOut,
    WhoOut,
)
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.access.tokens import TokenRecord, make_token
from anabranch_service.context import Ctx
from anabranch_service.durations import read_duration
from anabranch_service.errors import InvalidInput, known
from anabranch_service.parameters import Limit

router = guarded_router("/v1", tag="access")

TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", description="Id of the token.")]


@router.get("/whoami")
@needs(Need.TOKEN)
async def whoami(ctx: Ctx, request: Request, response: Response) -> WhoOut:
    """The caller's token and role."""
    response.headers["Cache-Control"] = "no-store"
    identity = request.state.identity
    return WhoOut.of(identity, token=identity.token or None, required=ctx.gate.required)


@router.post("/tokens", status_code=201)
@needs(Need.ADMIN)
async def create_token(body: TokenIn, ctx: Ctx, response: Response) -> TokenMade:
    """Create a token. Only this answer contains its secret."""
    now = ctx.clock()
    made = make_token(body.name, body.role, now, _expiry(body.ttl, now))
    await ctx.tokens.add(made.record, now)
    response.headers["Cache-Control"] = "no-store"
    return TokenMade.of(_out(made.record, None, now), token=made.text)


@router.get("/tokens")
@needs(Need.ADMIN)
async def list_tokens(ctx: Ctx) -> TokenList:
    """All tokens without their secrets, oldest first."""
    now, uses = ctx.clock(), await ctx.tokens.last_uses()
    found = await ctx.tokens.all()
    return TokenList(items=[_out(record, uses.get(record.id), now) for record in found])


@router.delete("/tokens/{ident}")
@needs(Need.ADMIN)
async def revoke_token(ident: TokenId, ctx: Ctx) -> TokenOut:
    """Revoke a token at once. Idempotent."""
    now = ctx.clock()
    found = await ctx.tokens.revoke(ident, now, required=ctx.gate.required)
    record = known(found, "token", ident)
    return _out(record, (await ctx.tokens.last_uses()).get(ident), now)


@router.get("/audit")
@needs(Need.ADMIN)
async def read_audit(
    ctx: Ctx,
    kind: Annotated[AuditKind, Query(description="Kind of entries.")] = AuditKind.CHANGE,
    limit: Limit = 100,
    cursor: Annotated[
        str | None,
        Query(
            pattern=r"^[0-9]{1,15}-[0-9]{1,15}$", description="`next_cursor` of the page before."
        ),
    ] = None,
) -> AuditPage:
    """The audit log of one kind of entries, newest first; about 10,000 of each kind are kept."""
    entries, following = await ctx.audit.page(kind, limit, cursor)
    return AuditPage(items=entries, next_cursor=following)


def _expiry(ttl: str | None, now: datetime) -> datetime | None:
    if ttl is None:
        return None
    micros = read_duration(ttl, "ttl")
    try:
        expiry = now + timedelta(microseconds=micros)
    except OverflowError:
        expiry = now
    if expiry == now:
        raise InvalidInput(
            "bad-expiry",
            f"a token can't live for {ttl!r}",
            field="ttl",
            remedy="give a positive duration, or leave the ttl out: the token is then valid "
            "until revoked",
        )
    return expiry


def _out(record: TokenRecord, used: datetime | None, now: datetime) -> TokenOut:
    return TokenOut.of(record, last_used_at=used, usable=record.usable(now))

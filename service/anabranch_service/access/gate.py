"""The gate: authenticates callers, and admits them to routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fastapi import Request

from anabranch_contract.rest.access import Role
from anabranch_service.access.failures import SECONDS, Failures
from anabranch_service.access.roles import ADMITTED, Need
from anabranch_service.access.tokens import Tokens, id_of, is_same
from anabranch_service.clock import Clock
from anabranch_service.errors import ServiceError

#: Longer values of the header are no token.
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller. ``token`` is the token's id, empty without one."""

    token: str
    name: str
    role: Role


#: Everybody, where tokens are not required.
ANONYMOUS = Identity("", "anonymous", Role.ADMIN)


class Unauthorized(ServiceError):
    """No token, or one that is not accepted."""

    status = 401
    headers: ClassVar[Mapping[str, str]] = {"WWW-Authenticate": 'Bearer realm="anabranch"'}


class Forbidden(ServiceError):
    """A token whose role is not enough."""

    status = 403


class TooManyFailures(ServiceError):
    """An address has failed to authenticate too often."""

    status = 429
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": str(round(SECONDS))}


class Gate:
    """Admits requests.

    Attributes:
        required: whether a request without a token is refused.
    """

    def __init__(self, tokens: Tokens, clock: Clock, *, required: bool) -> None:
        self._tokens = tokens
        self._clock = clock
        self._failures = Failures()
        self.required = required

    async def admit(self, request: Request, need: Need) -> Identity:
        """The caller of a request, if the route is open to them.

        Raises:
            Unauthorized: there is no token, or it is unknown, expired or revoked.
            TooManyFailures: likewise, and the address has failed too often.
            Forbidden: the token's role is not enough.
        """
        if need is Need.NOTHING:
            return ANONYMOUS
        given = request.headers.getlist("authorization")
        if not given and not self.required:
            return ANONYMOUS
        identity = await self._authenticate(request, given)
        request.state.identity = identity
        if identity.role not in ADMITTED[need]:
            roles = ", ".join(role for role in Role if role in ADMITTED[need])
            raise Forbidden(
                "forbidden",
                f"the role {identity.role} may not do this",
                remedy=f"use a token with one of these roles: {roles}",
            )
        return identity

    async def is_valid(self, identity: Identity) -> bool:
        """Whether a caller who was admitted would still be: long answers check again."""
        if not identity.token:
            return not self.required
        record = await self._tokens.find(identity.token)
        return record is not None and record.usable(self._clock())

    async def _authenticate(self, request: Request, given: list[str]) -> Identity:
        if not given:
            raise self._refusal(request, "no-token", "the request has no token")
        text = _bearer(given)
        ident = id_of(text)
        record = await self._tokens.find(ident) if ident is not None else None
        same, now = is_same(text, record), self._clock()
        if record is None or not same:
            raise self._refusal(request, "bad-token", "the token is not accepted")
        identity = Identity(record.id, record.name, record.role)
        request.state.identity = identity
        if not record.usable(now):
            raise self._refusal(request, "bad-token", "the token has expired or was revoked")
        await self._tokens.used(record.id, now)
        return identity

    def _refusal(self, request: Request, code: str, message: str) -> ServiceError:
        address = request.client.host if request.client else ""
        if self._failures.allow(address):
            remedy = "send 'Authorization: Bearer TOKEN'; an administrator creates tokens"
            return Unauthorized(code, message, field="Authorization", remedy=remedy)
        return TooManyFailures(
            "too-many-failures",
            "this address has failed to authenticate too often",
            remedy="correct the token, and wait",
        )


def _bearer(given: list[str]) -> str:
    """The token in the header; anything else is no token."""
    if len(given) != 1 or len(given[0]) > _LONGEST:
        return ""
    scheme, _, text = given[0].partition(" ")
    return text.strip(" ") if scheme.lower() == "bearer" else ""

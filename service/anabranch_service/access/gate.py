"""Authentication of callers by token, and their authorisation for routes by role."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fastapi import Request

from anabranch_contract.rest.access import Role
from anabranch_service.access.roles import ADMITTED, Need
from anabranch_service.access.tokens import Tokens, id_of, is_same
from anabranch_service.clock import Clock
from anabranch_service.errors import ServiceError

#: Failed authentications that an address may have in a burst, and seconds until one more.
BURST, SECONDS = 10, 6.0
#: Maximum number of addresses whose failures are counted; the address whose last failure is oldest
#: is evicted.
MOST_ADDRESSES = 4096
#: Longest accepted Authorization header, in characters.
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller. ``token``: id of the token; empty without a token."""

    token: str
    name: str
    role: Role


#: The caller of a request without a token, where tokens are not required.
ANONYMOUS = Identity("", "anonymous", Role.ADMIN)


class Unauthorized(ServiceError):
    """The request has no valid token."""

    status = 401
    headers: ClassVar[Mapping[str, str]] = {"WWW-Authenticate": 'Bearer realm="anabranch"'}


class Forbidden(ServiceError):
    """The token's role does not permit the request."""

    status = 403


class TooManyFailures(ServiceError):
    """Too many failed authentications from one address."""

    status = 429
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": str(round(SECONDS))}


class Gate:
    """Authenticates and authorises requests.

    Attributes:
        required: whether a request without a token is refused.
    """

    def __init__(self, tokens: Tokens, clock: Clock, *, required: bool) -> None:
        self._tokens = tokens
        self._clock = clock
        self._failures = FailureLimiter()
        self.required = required

    async def admit(self, request: Request, need: Need) -> Identity:
        """Authenticate and authorise the caller of a request.

        Raises:
            Unauthorized: the token is missing, unknown, expired or revoked.
            TooManyFailures: as Unauthorized, from an address with too many failures.
            Forbidden: the token's role does not permit the request.
        """
        if need is Need.NOTHING:
            return ANONYMOUS
        given = request.headers.getlist("authorization")
        address = request.client.host if request.client else ""
        return await self.identify(
            given, address, need, partial(setattr, request.state, "identity")
        )

    async def identify(
        self, given: list[str], address: str, need: Need, note: Callable[[Identity], None]
    ) -> Identity:
        """Authenticate and authorise a caller by its Authorization headers ``given``.

        Args:
            address: network address under which failures of the caller are counted.
            note: called with the caller once its token is known, before the token's term and role
                are checked.

        Raises:
            Unauthorized, TooManyFailures, Forbidden: as :meth:`admit`.
        """
        if not given and not self.required:
            return ANONYMOUS
        identity = await self._authenticate(given, address, note)
        if identity.role not in ADMITTED[need]:
            roles = ", ".join(role for role in Role if role in ADMITTED[need])
            raise Forbidden(
                "forbidden",
                f"the role {identity.role} may not do this",
                remedy=f"use a token with one of these roles: {roles}",
            )
        return identity

    async def is_valid(self, identity: Identity) -> bool:
        """Whether a caller still has access; long-running responses check this repeatedly."""
        if not identity.token:
            return not self.required
        record = await self._tokens.find(identity.token)
        return record is not None and record.usable(self._clock())

    async def _authenticate(
        self, given: list[str], address: str, note: Callable[[Identity], None]
    ) -> Identity:
        if not given:
            raise self._refusal(address, "no-token", "the request has no token")
        text = _bearer(given)
        ident = id_of(text)
        record = await self._tokens.find(ident) if ident is not None else None
        same, now = is_same(text, record), self._clock()
        if record is None or not same:
            raise self._refusal(address, "bad-token", "the token is not accepted")
        identity = Identity(record.id, record.name, record.role)
        note(identity)
        if not record.usable(now):
            raise self._refusal(address, "bad-token", "the token has expired or was revoked")
        await self._tokens.used(record.id, now)
        return identity

    def _refusal(self, address: str, code: str, message: str) -> ServiceError:
        if self._failures.allow(address):
            remedy = "send 'Authorization: Bearer TOKEN'; an administrator creates tokens"
            return Unauthorized(code, message, field="Authorization", remedy=remedy)
        return TooManyFailures(
            "too-many-failures",
            "this address has failed to authenticate too often",
            remedy="correct the token, and wait",
        )


def _bearer(given: list[str]) -> str:
    """Return the token in the Authorization headers ``given``; empty if there is none."""
    if len(given) != 1 or len(given[0]) > _LONGEST:
        return ""
    scheme, _, text = given[0].partition(" ")
    return text.strip(" ") if scheme.lower() == "bearer" else ""


class FailureLimiter:
    """Rate limit of failed authentications, by a token bucket per address.

    Its purpose is to bound the audit log, which records only failures within the limit. Against
    guessing no limit is needed, since secrets have 256 random bits.

    >>> failures = FailureLimiter(lambda: 0.0)
    >>> [failures.allow("10.0.0.1") for _ in range(BURST + 1)][-2:]
    [True, False]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, address: str) -> bool:
        """Count a failure of ``address``; False beyond the limit."""
        now = self._clock()
        left, since = self._left.pop(address, (float(BURST), now))
        left = min(float(BURST), left + (now - since) / SECONDS)
        allowed = left >= 1
        self._left[address] = (left - 1 if allowed else left, now)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return allowed

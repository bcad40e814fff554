"""Bearer tokens, which are shown only once, when they are created; Redis stores their digests.

A token is ``anb_<id>_<secret>``: the prefix lets scanners of leaked secrets find it, the id names
its record, the secret is 256 random bits. Such a secret can't be found by brute force, so one
SHA-256 protects it at rest. A deliberately slow hash helps only short, human-chosen secrets; here
it would only let clients waste the service's CPU.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

import structlog
from pydantic import AwareDatetime, ValidationError
from redis.asyncio.client import Pipeline

from anabranch_contract.rest.access import Role
from anabranch_contract.rest.documents import Closed
from anabranch_service.errors import Conflict, CorruptRecord
from anabranch_service.registry.store import Store

_LOG = structlog.get_logger(__name__)

#: Maximum number of stored tokens; revoked and expired tokens make room for new ones.
MOST_TOKENS = 1000
#: Precision of the recorded time of a token's last use.
USE_INTERVAL = timedelta(minutes=1)

_TEXT = re.compile(r"anb_([0-9a-f]{12})_([0-9a-f]{64})")


class TokenRecord(Closed):
    """A token as stored in Redis.

    Attributes:
        digest: SHA-256 of the token's whole text, in hexadecimal digits.
        expires_at: when it expires; None: never.
        revoked_at: when it was revoked; None: not revoked.
    """

    id: str
    name: str
    role: Role
    digest: str
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None

    def usable(self, now: datetime) -> bool:
        """Whether the token is neither expired nor revoked."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class Made:
    """A new token: its text, which can't be recovered later, and its record."""

    text: str
    record: TokenRecord


def make_token(
    name: str, role: Role, now: datetime, expires_at: datetime | None = None, text: str = ""
) -> Made:
    """Make a new token, with the given ``text`` if an operator chose it.

    Raises:
        ValueError: ``text`` does not have the form of a token.
    """
    text = text or f"anb_{secrets.token_hex(6)}_{secrets.token_hex(32)}"
    ident = id_of(text)
    if ident is None:
        raise ValueError("a token is anb_, 12 hexadecimal digits, _ and 64 hexadecimal digits")
    return Made(
        text,
        TokenRecord(
            id=ident,
            name=name,
            role=role,
            digest=digest_of(text),
            created_at=now,
            expires_at=expires_at,
        ),
    )


def id_of(text: str) -> str | None:
    """Return the id in a token's text; None if the text is not a token.

    >>> id_of("anb_0123456789ab_" + 64 * "0"), id_of("anb_"), id_of("Basic dTpw")
    ('0123456789ab', None, None)
    """
    found = _TEXT.fullmatch(text)
    return found[1] if found else None


def digest_of(text: str) -> str:
    """Return the stored digest of a token's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_same(text: str, record: TokenRecord | None) -> bool:
    """Whether ``text`` is the token of ``record``, by a constant-time comparison.

    Without a record, ``text`` is compared with a value that never matches.
    """
    kept = record.digest if record is not None else 64 * "x"
    return hmac.compare_digest(digest_of(text), kept) and record is not None


class Tokens:
    """The tokens of a pipeline (namespace), in Redis.

    Attributes:
        first: the administrator's token from the file. It is registered again if Redis has lost all
            data (``FLUSHALL``), so that the operator is not locked out.
    """

    def __init__(self, store: Store) -> None:
        self._redis = store.redis
        self._key, self._uses = store.keys.tokens, store.keys.token_uses
        self._noted: dict[str, datetime] = {}
        self.first: TokenRecord | None = None

    async def add(self, record: TokenRecord, now: datetime) -> None:
        """Store a new token's record.

        Raises:
            Conflict: the maximum number of tokens is stored, and all are usable.
        """

        async def attempt(pipe: Pipeline) -> None:
            kept, ended = await self.all(), list[str]()
            if len(kept) >= MOST_TOKENS:
                # Revoked tokens make room, except the one in the file: without its record it would
                # be registered again, and so be valid.
                first = "" if self.first is None else self.first.id
                ended = [r.id for r in kept if not r.usable(now) and r.id != first]
                if not ended:
                    raise Conflict(
                        "too-many-tokens",
                        f"there are {MOST_TOKENS} tokens already",
                        remedy="revoke unused tokens",
                    )
            pipe.multi()  # type: ignore[no-untyped-call]
            if ended:
                pipe.hdel(self._key, *ended)
                pipe.hdel(self._uses, *ended)
            pipe.hsetnx(self._key, record.id, record.model_dump_json())

        await self._redis.transaction(attempt, self._key)

    async def find(self, ident: str) -> TokenRecord | None:
        """Return the record of the token with id ``ident``, or None.

        Raises:
            CorruptRecord: the record can't be read.
        """
        text = cast("str | None", await cast("Any", self._redis.hget(self._key, ident)))
        if text is not None:
            return _read_token(ident, text)
        if self.first is not None and ident == self.first.id:
            await cast("Any", self._redis.hsetnx(self._key, ident, self.first.model_dump_json()))
            return self.first
        return None

    async def all(self) -> list[TokenRecord]:
        """Return all tokens' records, oldest first; unreadable ones are logged and left out."""
        raw = cast("dict[str, str]", await cast("Any", self._redis.hgetall(self._key)))
        found = []
        for ident, text in raw.items():
            try:
                found.append(_read_token(ident, text))
            except CorruptRecord as cause:
                _LOG.error("unreadable record", record=f"token {ident}", reason=cause.message)
        return sorted(found, key=lambda record: (record.created_at, record.id))

    async def revoke(self, ident: str, now: datetime, *, required: bool) -> TokenRecord | None:
        """Revoke a token; None if it does not exist. Idempotent.

        Args:
            required: whether requests need a token, so that an administrator's must remain.

        Raises:
            Conflict: it is the last usable token of an administrator.
        """

        async def attempt(pipe: Pipeline) -> TokenRecord | None:
            record, kept = await self.find(ident), await self.all()
            if required:
                admins = [one.id for one in kept if one.role is Role.ADMIN and one.usable(now)]
                if admins == [ident]:
                    raise Conflict(
                        "last-administrator",
                        "nobody could administer the service any more",
                        field="ident",
                        remedy="create another token with the role admin first",
                    )
            if record is None or record.revoked_at is not None:
                return record
            changed = record.model_copy(update={"revoked_at": now})
            pipe.multi()  # type: ignore[no-untyped-call]
            pipe.hset(self._key, ident, changed.model_dump_json())
            return changed

        done = self._redis.transaction(attempt, self._key, value_from_callable=True)
        return cast("TokenRecord | None", await done)

    async def used(self, ident: str, now: datetime) -> None:
        """Record a token's use, at most once in :data:`USE_INTERVAL`."""
        last = self._noted.get(ident)
        if last is not None and now - last < USE_INTERVAL:
            return
        if len(self._noted) >= MOST_TOKENS:
            self._noted.clear()
        self._noted[ident] = now
        await cast("Any", self._redis.hset(self._uses, ident, now.isoformat(timespec="seconds")))

    async def last_uses(self) -> dict[str, datetime]:
        """Return token id -> approximate time of its last use."""
        raw = cast("dict[str, str]", await cast("Any", self._redis.hgetall(self._uses)))
        return {ident: datetime.fromisoformat(text) for ident, text in raw.items()}


def _read_token(ident: str, text: str) -> TokenRecord:
    try:
        return TokenRecord.model_validate_json(text)
    except ValidationError:
        # The cause is left out of the message: it could quote the record's digest.
        raise CorruptRecord(
            "corrupt-record",
            f"the record of token {ident!r} in Redis can't be read",
            remedy="another program, or a newer service, wrote to this namespace",
        ) from None

"""Leadership among several services: one plans and publishes, all answer REST.

Leadership is stored in two keys. ``Keys.leader`` names the current or last leader and its *token*,
a number that grows by one with every new leader. ``Keys.lease`` exists while the lead is claimed;
it expires by Redis's clock unless renewed, and then any service may take the lead.

Invariant: the leader writes only by scripts that first compare the token (:func:`fenced`). So a
service that lost the lead without noticing (stopped, or cut off) writes nothing, even while it
believes that it leads. After its lease expires, a leader may still write until another service
takes the lead. So the length of the lease decides how soon another service takes over, never the
published content (ADR 0032).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from anabranch_contract.protocol.keys import Keys

_LOG = structlog.get_logger(__name__)

#: Interval between renewals, or checks of another's lease, as a fraction of the lease.
RENEW = 1 / 3
#: Maximum interval between two checks in seconds, however long the lease is.
_LONGEST_PAUSE = 1.0
#: Prefix of a script's error reply when another service leads.
_FENCED = "FENCED"

#: Acquire or renew the lease. KEYS lease, leader; ARGV owner, address, milliseconds, "1" to replace
#: a leader at the same address. Returns token and 0, or 0 and the other lease's milliseconds.
_ACQUIRE = """
local holder = redis.call('GET', KEYS[1])
local last = redis.call('HMGET', KEYS[2], 'owner', 'address', 'token')
if holder and holder ~= ARGV[1] then
  if ARGV[4] ~= '1' or last[1] ~= holder or last[2] ~= ARGV[2] then
    return {0, redis.call('PTTL', KEYS[1])}
  end
end
local token = tonumber(last[3] or '0')
if last[1] ~= ARGV[1] then
  token = redis.call('HINCRBY', KEYS[2], 'token', 1)
  redis.call('HSET', KEYS[2], 'owner', ARGV[1], 'address', ARGV[2],
    'since', redis.call('TIME')[1])
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return {token, 0}
"""

#: First part of every script that only the leader may run. KEYS leader; ARGV owner, token.
_FENCE = f"""
local leader = redis.call('HMGET', KEYS[1], 'owner', 'token')
if leader[1] ~= ARGV[1] or leader[2] ~= ARGV[2] then
  return redis.error_reply('{_FENCED} another service leads')
end
"""


def fenced(script: str) -> str:
    """Restrict ``script`` to the leader. Its keys begin with ``Keys.leader``, its arguments with
    the term's owner and token."""
    return _FENCE + script


#: Renew the lease. KEYS leader, lease; ARGV owner, token, milliseconds.
_RENEW = fenced("redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])\nreturn 1")
#: Release the lease. KEYS leader, lease; ARGV owner, token.
_RELEASE = fenced("return redis.call('DEL', KEYS[2])")


class LeadershipLost(Exception):
    """Another service leads: nothing was written."""


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """A period in which one service is the leader.

    Attributes:
        owner: random id of the process: distinguishes equal tokens after a loss of Redis data.
        token: greater than in all previous terms, unless Redis loses its data.
    """

    owner: str
    token: int


@dataclass(frozen=True, slots=True)
class Leader:
    """The present or last leader.

    Attributes:
        address: where it listens. ``since``: when its term began, by Redis's clock.
        seconds: remaining time of its lease; None: expired.
    """

    term: LeaderTerm
    address: str
    since: datetime
    seconds: float | None


class Lease:
    """This process's claim to lead.

    Attributes:
        term: the term that this process believes to have; None while it follows another.
        error: why the last access to the lease failed; empty: it succeeded.
    """

    def __init__(self, redis: Redis, keys: Keys, address: str, seconds: float) -> None:
        """``address``: where this process listens; unique among living processes."""
        self.address = address
        self.seconds = seconds
        self.term: LeaderTerm | None = None
        self.error = ""
        self._owner = uuid4().hex
        self._keys, self._redis = keys, redis
        self._acquire = redis.register_script(_ACQUIRE)
        self._renew = redis.register_script(_RENEW)
        self._release = redis.register_script(_RELEASE)
        self._is_first = True

    async def run(self) -> None:
        """Acquire and renew the lease until cancelled; then release it."""
        try:
            while True:
                await asyncio.sleep(await self._look())
        finally:
            await self._give_up()

    async def _look(self) -> float:
        """Call :meth:`turn`; log failures instead of raising them."""
        try:
            pause = await self.turn()
        except Exception as cause:  # noqa: BLE001 - logged; the next attempt may succeed
            if not self.error:
                _LOG.error("lease not reached", error=repr(cause))
            self.error = repr(cause)
            return min(self.seconds * RENEW, _LONGEST_PAUSE)
        self.error = ""
        return pause

    async def turn(self) -> float:
        """Renew the lease, or try to acquire it; returns the seconds until the next turn."""
        pause = min(self.seconds * RENEW, _LONGEST_PAUSE)
        if self.term is not None:
            try:
                await run_fenced(self._renew, self._keys, self.term, [self._keys.lease], [self._ms])
            except LeadershipLost:
                self.lose(self.term)
            return pause
        # Two processes can't listen at one address. So if the leader has this process's address,
        # it is dead, and the first attempt need not wait for its lease. In later attempts the
        # holder of the lease is alive.
        token, waits = cast(
            "list[int]",
            await self._acquire(
                keys=[self._keys.lease, self._keys.leader],
                args=[self._owner, self.address, self._ms, "1" if self._is_first else ""],
            ),
        )
        self._is_first = False
        if not token:
            return min(pause, max(waits, 10) / 1000)
        self.term = LeaderTerm(self._owner, token)
        _LOG.info("leads", token=token, address=self.address, lease_seconds=self.seconds)
        return pause

    def lose(self, term: LeaderTerm) -> None:
        """Stop leading, since another service leads; logged once per term."""
        if self.term != term:
            return
        self.term = None
        # The next term gets a new owner id, too.
        self._owner = uuid4().hex
        _LOG.warning("leadership lost, nothing more is published", token=term.token)

    @property
    def _ms(self) -> int:
        return max(int(self.seconds * 1000), 1)

    async def _give_up(self) -> None:
        """Release the lease, so that another service can lead at once."""
        term, self.term = self.term, None
        if term is None:
            return
        try:
            await run_fenced(self._release, self._keys, term, [self._keys.lease], [])
        except (LeadershipLost, RedisError) as cause:
            _LOG.info("lease not given up", reason=repr(cause))


async def run_fenced(
    script: Any, keys: Keys, term: LeaderTerm, more_keys: list[str], arguments: list[Any]
) -> Any:
    """Run a :func:`fenced` script, as the leader of ``term``.

    Raises:
        LeadershipLost: another service leads; nothing has been written.
    """
    try:
        return await script(
            keys=[keys.leader, *more_keys], args=[term.owner, str(term.token), *arguments]
        )
    except RedisError as cause:
        if _FENCED in str(cause):
            raise LeadershipLost(f"the leader's term {term.token} has ended") from None
        raise


async def leader_of(redis: Redis, keys: Keys) -> Leader | None:
    """Return the current or last leader; None if no service has ever led."""
    async with redis.pipeline(transaction=True) as pipe:
        pipe.hgetall(keys.leader)
        pipe.pttl(keys.lease)
        fields, milliseconds = cast("tuple[dict[str, str], int]", await pipe.execute())
    if not fields:
        return None
    return Leader(
        LeaderTerm(fields["owner"], int(fields["token"])),
        fields["address"],
        datetime.fromtimestamp(int(fields["since"]), UTC),
        milliseconds / 1000 if milliseconds > 0 else None,
    )

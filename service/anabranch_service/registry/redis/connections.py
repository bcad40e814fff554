"""Connections to Redis whose commands can be cancelled.

Up to Python 3.11 ``asyncio.wait_for``, which the Redis client uses to send a command, drops a
cancellation that arrives just as its operation ends. Then a cancelled task continues, or
``asyncio.timeout`` ends without a ``TimeoutError``. Two in three of random cancellations during
reads were dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from redis.asyncio import Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as Silent

#: Time limit in seconds of one command.
SECONDS = 5.0


class _Cancellable(AbstractConnection):
    """Mixin that sends commands without ``asyncio.wait_for``."""

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if check_health:
            await self.check_health()  # type: ignore[no-untyped-call]
        packed = command.encode() if isinstance(command, str) else command
        try:
            async with asyncio.timeout(self.socket_timeout):
                await self._send_packed_command([packed] if isinstance(packed, bytes) else packed)
        except BaseException as cause:
            # The command may have been sent in part.
            await self.disconnect(nowait=True)
            if isinstance(cause, TimeoutError):
                raise Silent("Timeout writing to socket") from None
            if isinstance(cause, OSError):
                raise Disconnected(f"Error while writing to socket: {cause}") from cause
            raise


class _Plain(_Cancellable, Connection):
    """Connection by TCP."""


class _Encrypted(_Cancellable, SSLConnection):
    """Connection by TLS."""


class _Local(_Cancellable, UnixDomainSocketConnection):
    """Connection by a Unix socket."""


_KINDS: dict[type[AbstractConnection], type[AbstractConnection]] = {
    Connection: _Plain, SSLConnection: _Encrypted, UnixDomainSocketConnection: _Local
}  # fmt: skip


def open_redis(url: str) -> Redis:
    """Make a Redis client that returns texts; commands take at most :data:`SECONDS`."""
    redis = Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=SECONDS,
        # After a restart of Redis the first use of each pooled connection fails: try it again.
        retry=Retry(NoBackoff(), 1),
    )
    pool = redis.connection_pool
    pool.connection_class = _KINDS[pool.connection_class]
    return redis

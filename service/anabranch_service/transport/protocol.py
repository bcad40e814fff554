"""HTTP/1.1 with protection against clients that are slow on purpose.

uvicorn waits for ever for the rest of a header, and for a body that no route reads. So one client
could occupy all file descriptors with idle connections. This protocol limits the time in which a
request must arrive, the time in which a client must read the answer, and the number of connections.
"""

from __future__ import annotations

import asyncio

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

_LOG = structlog.get_logger(__name__)

#: Time limit on a body that no route reads, as a multiple of a request's time limit. A route that
#: reads the body refuses the request at the request's time limit.
_SLACK = 2.0
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\n"
_LATE = b"HTTP/1.1 408 Request Timeout\r\n"
_REST = b"content-length: 0\r\nconnection: close\r\n\r\n"


class BoundedProtocol(H11Protocol):
    """A connection of a client.

    Attributes:
        most: maximum number of simultaneous connections; a further one is answered 503 and closed.
        seconds: time limit of a request's header, and of a client's pause in reading the answer.
    """

    most = 512
    seconds = 30.0

    _arriving: asyncio.TimerHandle | None = None
    _leaving: asyncio.TimerHandle | None = None
    _in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it with 503 beyond the maximum number."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            _LOG.warning("too many connections", most=self.most)
            self.connections.discard(self)
            transport.write(_BUSY + b"retry-after: 1\r\n" + _REST)
            transport.close()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a closed connection."""
        _stop(self._arriving)
        _stop(self._leaving)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes, and limit the wait for the rest of the request."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Prepare for the next request of the connection."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Wait for a client that does not read, up to the time limit."""
        super().pause_writing()
        self._leaving = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Resume writing, and stop the time limit."""
        _stop(self._leaving)
        super().resume_writing()

    def _watch(self) -> None:
        """Start or stop the timer of an incomplete header or body."""
        theirs = self.conn.their_state
        in_body = theirs is h11.SEND_BODY
        # Between two requests of a connection uvicorn's own timer applies.
        idle = theirs is h11.IDLE and self.timeout_keep_alive_task is not None
        if self.transport.is_closing() or idle or theirs not in (h11.IDLE, h11.SEND_BODY):
            _stop(self._arriving)
            self._arriving = None
        elif self._arriving is None or in_body is not self._in_body:
            _stop(self._arriving)
            seconds = self.seconds * _SLACK if in_body else self.seconds
            self._arriving = self.loop.call_later(seconds, self._give_up)
        self._in_body = in_body

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE:
            self.transport.write(_LATE + _REST)
            self.transport.close()
        else:
            self.transport.abort()


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def bounded(most: int, seconds: float) -> type[BoundedProtocol]:
    """Return a protocol class for uvicorn with these limits."""
    return type("Protocol", (BoundedProtocol,), {"most": most, "seconds": seconds})

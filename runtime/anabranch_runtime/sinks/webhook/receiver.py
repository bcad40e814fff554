"""Connection to the receiver of a webhook.

Connections are made to permitted addresses only: the host is resolved here, and the connection is
made to the address that was checked. Redirections are not followed, and proxies not used.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_runtime.errors import SinkError, SinkPaused

#: Maximum bytes read of an answer; after a longer answer the connection is closed.
_MOST = 1 << 16
#: Statuses from 400 to 499 after which a request is repeated soon: timeout, too early, too many.
_LATER = frozenset({408, 425, 429})
#: Seconds until a refused request is tried again, and longest pause that a receiver may request.
REFUSED, LONGEST = 60.0, 3600.0

_FIELD = "sink.options.url"
_FAILED = (OSError, HTTPException)


@dataclass(slots=True)
class Receiver:
    """Posts requests to one address, over one connection as long as the receiver keeps it.

    Attributes:
        url: plain address, ``http`` or ``https``.
        timeout: seconds for a request and its answer, and for a connection.
    """

    url: str
    access: AccessPolicy
    timeout: float
    _connection: HTTPConnection | None = field(default=None, init=False)

    def post(self, body: bytes, headers: dict[str, str]) -> None:
        """Post a request to the webhook's receiver.

        Raises:
            SinkPaused: the receiver does not answer, or answers with a failure.
            SinkError: the address can't be used.
        """
        kept = self._connection is not None
        try:
            answer = self._answer(body, headers)
        except _FAILED as cause:
            # The receiver may have closed the connection; it is harmless to repeat a request.
            if not kept or isinstance(cause, TimeoutError):
                raise self._unanswered(cause) from cause
            try:
                answer = self._answer(body, headers)
            except _FAILED as again:
                raise self._unanswered(again) from again
        status, retry = answer
        if not 200 <= status < 300:
            raise refusal(status, self._shown, retry, time.time())

    def close(self) -> None:
        """Close the connection to the webhook's receiver."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _shown(self) -> str:
        return urlsplit(self.url).netloc

    def _answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, str | None]:
        """Send a request; return the status of the answer, and its ``Retry-After``."""
        connection = self._connection or self._connect()
        self._connection = None
        # A socket's timeout only limits the time between two bytes, so a timer limits the total.
        expired = threading.Event()
        timer = threading.Timer(self.timeout, _expire, (connection.sock, expired))
        timer.daemon = True
        timer.start()
        try:
            connection.request("POST", urlsplit(self.url).path or "/", body, headers)
            answer = connection.getresponse()
            whole = _is_whole(answer)
        except _FAILED as cause:
            connection.close()
            if expired.is_set():
                raise TimeoutError(f"no answer within {self.timeout:g} s") from cause
            raise
        finally:
            timer.cancel()
        if whole and not answer.will_close:
            self._connection = connection
        else:
            connection.close()
        return answer.status, answer.headers.get("Retry-After")

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise SinkError(
                "bad-address",
                "this is not a plain address of a server",
                field=_FIELD,
                remedy="give https://host:port/path",
            )
        secure, host = parts.scheme == "https", parts.hostname
        port = parts.port or (443 if secure else 80)
        link = socket.create_connection((self._address(host, port), port), self.timeout)
        try:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if secure:
                link = ssl.create_default_context().wrap_socket(link, server_hostname=host)
        except BaseException:
            link.close()
            raise
        kind = HTTPSConnection if secure else HTTPConnection
        connection = kind(host, port, timeout=self.timeout)
        connection.sock = link
        return connection

    def _address(self, host: str, port: int) -> str:
        """Return the first permitted address of the webhook's ``host``."""
        found = [str(i[4][0]) for i in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        for address in found:
            if self.access.permits_address(host, port, address):
                return address
        raise SinkError(
            "host-not-allowed",
            f"{host} is at {', '.join(dict.fromkeys(found))}, which is not public",
            field=_FIELD,
            remedy=f"--allow-host {host}:{port} (ANABRANCH_ALLOW_HOST) allows it by name",
        )

    def _unanswered(self, cause: Exception) -> SinkPaused:
        return SinkPaused(
            "no-server",
            f"the receiver at {self._shown}: {str(cause) or type(cause).__name__}",
            field=_FIELD,
            remedy="check that the receiver runs and answers in time; the request is tried again",
        )


def refusal(status: int, shown: str, retry: str | None, now: float) -> SinkPaused:
    """Return the error for the status with which a webhook's receiver answers.

    Args:
        retry: the answer's ``Retry-After``: seconds, or a date. ``now``: seconds since 1970.
    """
    if status >= 500 or status in _LATER:
        return SinkPaused(
            "sink-refused",
            f"the receiver at {shown} answers {status}",
            field=_FIELD,
            remedy="the request is tried again; see the receiver's log",
            pause=_seconds(retry, now),
        )
    remedy = {
        3: "redirections are not followed: register the query again with the final address",
        1: "see the receiver's log",
    }.get(
        status // 100,
        "correct the receiver (its address, its key, its checks); it is tried again each minute,"
        " and nothing is lost",
    )
    return SinkPaused(
        "sink-refused",
        f"the receiver at {shown} refuses the results with status {status}",
        field=_FIELD,
        remedy=remedy,
        pause=REFUSED,
    )


def _seconds(retry: str | None, now: float) -> float | None:
    """Return the pause that a ``Retry-After`` requests, in seconds; None if it is not valid.

    >>> _seconds("7", 0.0), _seconds("Thu, 01 Jan 1970 00:00:09 GMT", 4.0), _seconds("soon", 0.0)
    (7.0, 5.0, None)
    """
    if retry is None:
        return None
    if retry.isascii() and retry.isdigit():
        return min(float(retry[:9]), LONGEST)
    with suppress(ValueError, OverflowError):
        return min(max(parsedate_to_datetime(retry).timestamp() - now, 0.0), LONGEST)
    return None


def _expire(link: socket.socket, expired: threading.Event) -> None:
    expired.set()
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)


def _is_whole(answer: HTTPResponse) -> bool:
    """Read the first :data:`_MOST` bytes of an answer; return whether there are no more."""
    answer.read(_MOST)
    return answer.isclosed()

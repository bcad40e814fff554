"""Arrow Flight calls between worker processes and from the driver: authentication, connections."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterable
from typing import Any

import pyarrow.flight as flight

_HEADER = "authorization"
#: Milliseconds without an answer after which a peer counts as lost.
_KEEPALIVE = 20_000
_OPTIONS = [("grpc.keepalive_time_ms", _KEEPALIVE), ("grpc.keepalive_timeout_ms", _KEEPALIVE)]


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Flight middleware of a server; rejects calls that lack the pipeline's token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._wanted = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[Any]]) -> None:
        given = headers.get(_HEADER, [""])[0]
        given = given.encode() if isinstance(given, str) else given
        if not hmac.compare_digest(given, self._wanted):
            raise flight.FlightUnauthenticatedError("not a task of this pipeline")


def gate(token: str) -> dict[str, flight.ServerMiddlewareFactory]:
    """Return the middleware of a server that rejects calls without ``token``."""
    return {"token": _Gate(token)}


def call_options(token: str, seconds: float) -> flight.FlightCallOptions:
    """Return the options of a call with ``token`` and a timeout in seconds."""
    return flight.FlightCallOptions(
        timeout=seconds, headers=[(_HEADER.encode(), f"Bearer {token}".encode())]
    )


_CLIENTS: dict[str, flight.FlightClient] = {}
_LOCK = threading.Lock()


def client_of(location: str) -> flight.FlightClient:
    """Return this process's Arrow Flight connection to the server at ``location``."""
    with _LOCK:
        found = _CLIENTS.get(location)
        if found is None:
            found = _CLIENTS[location] = flight.FlightClient(location, generic_options=_OPTIONS)
        return found


def forget_client(location: str) -> None:
    """Drop the connection to ``location``, so that the next call reconnects."""
    with _LOCK:
        _CLIENTS.pop(location, None)


def keep_clients(locations: Iterable[str]) -> None:
    """Drop the Flight connections to all servers except ``locations``; the others have ended."""
    wanted = set(locations)
    with _LOCK:
        for location in set(_CLIENTS) - wanted:
            del _CLIENTS[location]

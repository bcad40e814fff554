"""A connection to Redis that is watched: what a process sends is counted, and at one message the
process is killed, before or after Redis has got it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

_CHUNK = 1 << 20


class Severed:
    """Passes bytes on to a server, and strikes at one message, which is what one read of the
    connection gives. A message that has been seen before, as of somebody who waits, is not counted.

    Attributes:
        url: where the process finds Redis.
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
        """Have ``strike`` called once, at the first message for which ``due`` (of its number and
        its bytes) holds: after Redis has answered it, or before Redis gets it, which it never does.
        """
        with self._lock:
            self._strike, self._due, self._after = strike, due, after
            self._seen.clear()

    @property
    def armed(self) -> bool:
        """Whether the strike has not happened yet."""
        return self._due is not None

    def close(self) -> None:
        """Take no further connections."""
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
        """Wait until the server has answered somebody else, who came later."""
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

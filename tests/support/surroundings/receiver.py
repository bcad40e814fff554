"""A receiver of webhooks: a real server that can be slow, down, or fail before or after it has
processed a request. It refuses wrong signatures, and keeps a ledger of requests by id.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Fault(StrEnum):
    """How the receiver treats a request."""

    NONE = "none"
    BUSY = "busy"  # 503 with Retry-After
    ERROR = "error"  # 500, not processed
    ERROR_AFTER = "error after"  # processed, then 500
    DROPPED = "dropped"  # closed without an answer, not processed
    DROPPED_AFTER = "dropped after"  # processed, then closed without an answer
    SLOW = "slow"  # processed, and answered after the sender's patience
    REFUSED = "refused"  # 401


@dataclass(slots=True)
class Received:
    """A received request: its headers with lower-case names, and its body."""

    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Webhook:
    """A running receiver.

    Attributes:
        fault: function from a request to its treatment.
        seen: all requests, including unprocessed ones. ``ledger``: processed requests by id.
        delay: seconds before a slow answer. ``hurry``: if set, slow answers are sent at once.
    """

    port: int = 0
    fault: Callable[[Received], Fault] = lambda _: Fault.NONE
    delay: float = 1.5
    seen: list[Received] = field(default_factory=list)
    ledger: dict[str, bytes] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    hurry: threading.Event = field(default_factory=threading.Event)
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def start(self) -> None:
        """Listen, always at the same port."""
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                webhook.answer(
                    self, Received({k.lower(): v for k, v in self.headers.items()}, body)
                )

            def log_message(self, *_: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_: Any) -> None: ...

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler, request: Received) -> None:
        with self.lock:
            fault = self.fault(request)
            self.seen.append(request)
            self.faults.append(fault)
            if fault in (Fault.NONE, Fault.SLOW, Fault.ERROR_AFTER, Fault.DROPPED_AFTER):
                self._process(request)
        if fault is Fault.SLOW:
            self.hurry.wait(self.delay)
        if fault in (Fault.DROPPED, Fault.DROPPED_AFTER):
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        status = {Fault.BUSY: 503, Fault.ERROR: 500, Fault.ERROR_AFTER: 500, Fault.REFUSED: 401}
        handler.send_response(status.get(fault, 200))
        if fault is Fault.BUSY:
            handler.send_header("Retry-After", "0")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def _process(self, request: Received) -> None:
        ident, moment = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        content = f"{ident}.{moment}.".encode() + request.body
        digest = base64.b64encode(hmac.digest(KEY, content, hashlib.sha256)).decode()
        if f"v1,{digest}" not in request.headers["webhook-signature"].split():
            self.wrong.append(f"signature of {ident}")
        if abs(time.time() - int(moment)) > 60:
            self.wrong.append(f"time of {ident}")
        # Requests with the same id must have the same rows, byte for byte.
        if self.ledger.setdefault(ident, request.body) != request.body:
            self.wrong.append(f"another body of {ident}")

    def rows(self, query: str = "q") -> list[Any]:
        """Return the rows of a query, in the order of their first arrival."""
        with self.lock:
            assert not self.wrong, self.wrong
            bodies = [json.loads(body) for body in self.ledger.values()]
        return [row for body in bodies if body["query"] == query for row in body["rows"]]


@contextmanager
def receiving() -> Iterator[Webhook]:
    """Context with a receiver that accepts everything."""
    found = Webhook()
    found.start()
    try:
        yield found
    finally:
        found.stop()

"""``python s3_proxy.py SERVER PORT CONTROL``: a proxy of a server of the S3 API that misbehaves.

A JSON document that is PUT to the port ``CONTROL`` sets the behaviour: ``fail`` is the share of
requests that get no proper answer (half of these are executed nevertheless), ``delay`` the
additional seconds of each request, ``away`` whether connections are closed at once, ``only`` the
access key without which requests are refused. It imports no module of this project, since it runs
on a separate host.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

_SLOW_DOWN = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"""
_DENIED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"""
#: Headers that apply to a single connection.
_OWN = {"connection", "transfer-encoding", "keep-alive"}


class Proxy(BaseHTTPRequestHandler):
    """Handler that forwards a request, or lets it fail."""

    protocol_version = "HTTP/1.1"
    server_address: ClassVar[str] = ""
    behaviour: ClassVar[dict[str, Any]] = {}
    counts: ClassVar[dict[str, int]] = {"passed": 0, "failed": 0}
    draw: ClassVar[random.Random] = random.Random(1)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def handle_one_request(self) -> None:
        """Handle a request as the base class does, or close the connection at once."""
        if self.behaviour.get("away"):
            self.close_connection = True
            return
        super().handle_one_request()

    def _pass(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            del self.headers["Expect"]
        body = self._body()
        behaviour = dict(self.behaviour)
        time.sleep(behaviour.get("delay", 0.0))
        if self._refused(behaviour):
            return
        fate = self.draw.random()
        share = behaviour.get("fail", 0.0)
        if behaviour.get("away") or fate < share / 2:
            self.counts["failed"] += 1
            self._refuse()
            return
        upstream = http.client.HTTPConnection(self.server_address, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _OWN}
            if body and "Content-Length" not in headers:
                headers["Content-Length"] = str(len(body))
            upstream.request(self.command, self.path, body=body, headers=headers)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        if fate < share:
            # The store has executed the request, but the answer is lost.
            self.counts["failed"] += 1
            self.close_connection = True
            return
        self.counts["passed"] += 1
        self.send_response_only(answer.status, answer.reason)
        for key, value in answer.getheaders():
            if key.lower() not in _OWN | {"content-length"}:
                self.send_header(key, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline() not in (b"\r\n", b"\n", b""):
            pass
        return b"".join(parts)

    def _refused(self, behaviour: dict[str, Any]) -> bool:
        """Refuse a request without the required access key."""
        key = behaviour.get("only")
        if not key or f"Credential={key}/" in self.headers.get("Authorization", ""):
            return False
        self._answer(403, "Forbidden", _DENIED)
        return True

    def _refuse(self) -> None:
        if self.draw.random() < 0.5:
            self.close_connection = True
            return
        self._answer(503, "Slow Down", _SLOW_DOWN)

    def _answer(self, status: int, reason: str, content: bytes) -> None:
        self.send_response_only(status, reason)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class Control(BaseHTTPRequestHandler):
    """Handler that sets the behaviour, and answers with the number of failed requests."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_PUT(self) -> None:
        """Set the behaviour of the proxy."""
        Proxy.behaviour = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(Proxy.counts).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


class Server(ThreadingHTTPServer):
    """A server that does not wait for its connections when it ends."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that have disconnected."""


def main(server: str, port: int, control: int) -> None:
    """Serve without end."""
    Proxy.server_address = server
    controlled = Server(("", control), Control)
    threading.Thread(target=controlled.serve_forever, daemon=True).start()
    Server(("", port), Proxy).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

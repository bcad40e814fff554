"""A server with the routes of a schema registry that readers use, in place of a real registry."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry:
    """Schemas of the registry by id, and by subject and version (``/subjects/S/versions/V``).

    Attributes:
        answers: path -> status and body of other answers.
        login: expected ``Authorization`` header; None: none.
        asked: requested paths, in order.
    """

    def __init__(self, schemas: Mapping[int, Any], port: int = 0) -> None:
        self.answers = dict[str, tuple[int, Any]]()
        self.login: str | None = None
        self.asked = list[str]()
        for number, schema in schemas.items():
            self.add(number, schema)
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                absent = 404, {"error_code": 40403, "message": "Schema not found"}
                status, body = registry.answers.get(self.path, absent)
                if registry.login is not None and self.headers["Authorization"] != registry.login:
                    status, body = 401, {"error_code": 401}
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """URL of the registry."""
        return f"http://127.0.0.1:{self.port}"

    def add(self, number: int, schema: Any, **more: Any) -> None:
        """Register a schema under the id ``number``."""
        self.answers[f"/schemas/ids/{number}"] = 200, {"schema": json.dumps(schema), **more}

    def add_protobuf(self, number: int, text: str, **more: Any) -> None:
        """Register the text of a Protobuf schema under the id ``number``."""
        answer = {"schema": text, "schemaType": "PROTOBUF", **more}
        self.answers[f"/schemas/ids/{number}"] = 200, answer

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(
    schemas: Mapping[int, Any], protobuf: Mapping[int, str] | None = None
) -> Iterator[dict[str, str]]:
    """Context with a registry of Avro and Protobuf schemas; yields it and the options of a source
    that uses it.
    """
    registry = Registry(schemas)
    for number, text in (protobuf or {}).items():
        registry.add_protobuf(number, text)
    try:
        yield {"registry": registry.address}
    finally:
        registry.close()


def framed(number: int, message: bytes) -> bytes:
    """Return a message with the id of its schema in front."""
    return b"\0" + number.to_bytes(4, "big") + message

"""A server of Iceberg's REST catalog for tests, over a catalog in a database."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest

#: Bearer token that requests must have.
TOKEN = "token-of-the-catalog"


@contextmanager
def rest_catalog(catalog: Catalog) -> Iterator[str]:
    """Context with a server for the tables of ``catalog``; yields its URL. Requests need
    :data:`TOKEN`.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, found = 200, dict[str, Any]()
            try:
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status = 403
                else:
                    found = _answer(catalog, self.command, urlsplit(self.path).path, body)
            except NoSuchTableError:
                status = 404
            except (
                CommitFailedException,
                NamespaceAlreadyExistsError,
                TableAlreadyExistsError,
            ):
                status = 409
            if status != 200:
                found = {"error": {"message": "refused", "type": "Refused", "code": status}}
            sent = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(catalog: Catalog, method: str, path: str, body: str) -> dict[str, Any]:
    parts = path.removeprefix("/v1/").split("/")
    if parts == ["config"]:
        return {"defaults": {}, "overrides": {}}
    if parts == ["namespaces"]:
        namespace = json.loads(body)["namespace"]
        catalog.create_namespace(tuple(namespace))
        return {"namespace": namespace, "properties": {}}
    if len(parts) == 3:
        # Tables are only staged here: the following commit creates them.
        absent = dict.fromkeys(("location", "partition-spec", "write-order"))
        asked = CreateTableRequest.model_validate(absent | json.loads(body))
        staged = catalog.create_table_transaction(
            (parts[1], asked.name), asked.table_schema, properties=asked.properties
        )
        return {"metadata": json.loads(staged.table_metadata.model_dump_json())}
    name = (parts[1], parts[3])
    if method == "GET":
        return _described(catalog.load_table(name))
    change = CommitTableRequest.model_validate_json(body)
    table: Any = SimpleNamespace(name=lambda: name)
    return _described(catalog.commit_table(table, change.requirements, change.updates))


def _described(table: Any) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
    }

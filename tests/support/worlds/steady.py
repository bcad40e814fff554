"""A steady input of two streams, and a pipeline's results compared with DuckDB's join."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa
import redis

from anabranch_client.rest.api import Client
from tests.support.worlds.processes import meanwhile, wait_until
from tests.support.worlds.up import JOIN, NAMESPACE

#: Rows of a stream with the same key, and so results per row.
ALIKE = 4


class Running(Protocol):
    """A running pipeline in the namespace :data:`NAMESPACE`; its results are below ``home``."""

    home: Path

    def client(self) -> AbstractContextManager[Client]:
        """Return a client of the pipeline's service."""

    def redis(self) -> AbstractContextManager[redis.Redis]:
        """Return a connection to the pipeline's Redis."""


def register(up: Running) -> None:
    """Register two Redis Streams and their join, and wait until the join is active."""
    with up.client() as client:
        for stream in "ab":
            columns = (("id", "bigint"), ("k", "bigint"))
            client.create_stream(stream, columns, source={"format": "redis-stream"})
        client.create_query(JOIN, name="q")
        wait_until("the query to be active", lambda: client.query("q").status == "active")


@contextlib.contextmanager
def fed(up: Running, every: float = 0.05) -> Iterator[None]:
    """Context in which rows are appended each ``every`` seconds; lost while Redis is down."""

    def feed(over: threading.Event) -> None:
        number = 0
        with up.redis() as server:
            while not over.wait(every):
                document = json.dumps({"id": number, "k": number // ALIKE})
                for stream in "ab":
                    with contextlib.suppress(redis.RedisError):
                        server.xadd(f"{NAMESPACE}:stream:{stream}", {"data": document})
                number += 1

    with meanwhile(feed):
        yield


def differences(up: Running, patience: float = 120.0) -> tuple[int, int, int]:
    """Wait for all results of the rows in Redis; return the numbers of missing, of duplicate or
    wrong, and of right results.
    """
    with duckdb.connect() as database:
        with up.redis() as server:
            for stream in "ab":
                entries: Any = server.xrange(f"{NAMESPACE}:stream:{stream}")
                rows = [json.loads(fields["data"]) for _, fields in entries]
                database.register(stream, pa.Table.from_pylist(rows))
        wanted = set(database.execute(JOIN).fetchall())
        deadline = time.monotonic() + patience
        while True:
            files = [str(p) for p in (up.home / "results" / "q").glob("*.parquet")]
            found = database.execute("SELECT x, y FROM read_parquet(?)", [files]).fetchall()
            if len(found) >= len(wanted) or time.monotonic() > deadline:
                break
            time.sleep(0.5)
    right = wanted & set(found)
    return len(wanted) - len(right), len(found) - len(right), len(right)

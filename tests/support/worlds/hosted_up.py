"""``anabranch up`` on a host of a cluster, fed by Redis Streams, and its expected results.

The feeder chooses the entry ids of rows, so that a row whose write was interrupted is written once.
All written rows are the ledger: DuckDB joins them, and every result must exist exactly once.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import duckdb
import psutil
import pyarrow as pa
import redis

from anabranch_client.errors import ClientError
from anabranch_client.rest.api import Client
from anabranch_contract.protocol.progress import Progress
from tests.support.surroundings.network import Host
from tests.support.worlds.hosts import Cluster
from tests.support.worlds.processes import PATIENCE, wait_until
from tests.support.worlds.strikes import processes
from tests.support.worlds.up import Target

NAMESPACE = "anabranch"
STREAMS = "abc"
COLUMNS = (("id", "bigint"), ("k", "int"), ("m", "int"))
#: Ids are unique in a stream, so doubled results are detected.
QUERIES = {
    "ab": "SELECT a.id AS x, b.id AS y, 0 AS z FROM a JOIN b ON a.k = b.k",
    "aa": "SELECT p.id AS x, q.id AS y, 0 AS z FROM a p JOIN a q ON p.k = q.m",
    "abc": "SELECT a.id AS x, b.id AS y, c.id AS z FROM a JOIN b ON a.k = b.k JOIN c ON b.m = c.m",
}
#: A query that is added and deleted during the run.
GUEST = "SELECT a.id AS x, c.id AS y FROM a JOIN c ON a.k = c.k AND a.m = c.m"
NOBODY: Mapping[Path, int] = {}
#: Number of values of ``k`` and ``m``: a row finds few partners.
VALUES = 400


@dataclass
class Ledger:
    """All rows written so far, by stream."""

    rows: dict[str, list[tuple[int, int, int]]] = field(
        default_factory=lambda: {name: [] for name in STREAMS}
    )

    def results(self, query: str) -> list[tuple[int, int, int]]:
        """Return the expected results of a query, computed by DuckDB."""
        with duckdb.connect() as engine:
            for name, rows in self.rows.items():
                ids, ks, ms = zip(*rows, strict=True) if rows else ((), (), ())
                table = pa.table({"id": ids, "k": ks, "m": ms})
                engine.register(name, table)
            return sorted(engine.sql(QUERIES[query]).fetchall())


class Feeder:
    """Context in which a thread writes rows to all streams."""

    def __init__(self, url: str, seed: int, pace: float) -> None:
        self.ledger = Ledger()
        self._draw, self._pace, self._over = Random(seed), pace, threading.Event()
        self._redis = redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        self._redis.close()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(self._pace):
            number += 1
            for stream in STREAMS:
                values = (number, self._draw.randrange(VALUES), self._draw.randrange(VALUES))
                self._write(stream, values)
                self.ledger.rows[stream].append(values)

    def _write(self, stream: str, values: tuple[int, int, int]) -> None:
        document = json.dumps(dict(zip(("id", "k", "m"), values, strict=True)))
        while True:
            try:
                key = f"{NAMESPACE}:stream:{stream}"
                self._redis.xadd(key, {"data": document}, id=f"{values[0]}-1")
            except redis.ResponseError as error:
                # The row has been written, but the answer was lost.
                if "equal or smaller" not in str(error):
                    raise
            except redis.RedisError:
                time.sleep(0.2)
                continue
            return


@dataclass
class HostedUp:
    """A process of ``anabranch up`` on a host.

    Attributes:
        home: folder of the pipeline, which both the host and this process see.
        store: the address of the object store.
    """

    world: Cluster
    host: Host
    home: Path
    store: str
    extra: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    #: Folders with the administrator's token, if it is not in the home.
    token_files: tuple[Path, ...] = ()
    #: Queries that were added during the run.
    guests: list[str] = field(default_factory=list)

    @property
    def log(self) -> str:
        """Name of the file with the command's output."""
        return f"up-{self.home.parent.name}-{self.home.name}"

    def start(self) -> None:
        """Start the command."""
        arguments: tuple[str, ...] = (
            "up",
            "--dir",
            str(self.home),
            "--port",
            "8080",
        )
        arguments += ("--host", self.host.address, "--master", self.world.master)
        arguments += ("--object-store", self.store, "--epoch-batches", "5", "--parallelism", "4")
        self.process = self.world.command(
            self.log, *arguments, *self.extra, host=self.host, variables=self.variables
        )

    def text(self) -> str:
        """Return the output so far."""
        return self.world.said(self.log)

    def wait(self, word: str, seconds: float = PATIENCE) -> None:
        """Wait until the command has printed ``word``."""

        def said() -> bool:
            assert self.process is not None
            text = self.text()
            assert self.process.poll() is None or word in text, text
            return word in text

        wait_until(f"up to say {word!r}", said, seconds)

    @property
    def url(self) -> str:
        """URL of the service."""
        return f"http://{self.host.address}:8080"

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client of the service."""
        files = self.token_files or (self.home / "admin.token",)
        token = next(file for file in files if file.exists()).read_text().strip()
        with Client(self.url, token=token) as client:
            yield client

    def register(self) -> None:
        """Register the streams and the queries."""
        with self.client() as client:
            for stream in STREAMS:
                client.create_stream(stream, COLUMNS, source={"format": "redis-stream"})
            for name, sql in QUERIES.items():
                client.create_query(sql, name=name)

    def await_active(self) -> None:
        """Wait until the queries see arriving rows."""

        def active() -> bool:
            return all(client.query(name).status == "active" for name in QUERIES)

        with self.client() as client:
            wait_until("the queries to be active", active)

    def change(self) -> None:
        """Add a further query, with which others may share plans, or end one."""
        with self.client() as client:
            if len(self.guests) > 1:
                client.delete_query(self.guests.pop(0))
            else:
                name = f"guest{time.monotonic_ns()}"
                client.create_query(GUEST, name=name)
                self.guests.append(name)

    def progress(self) -> Progress | None:
        """Return the progress of the runtime; None if Redis does not answer."""
        with suppress(redis.RedisError):
            return self.world.progress(NAMESPACE)
        return None

    def committed(self) -> int:
        """Return the number of committed batches."""
        found = self.progress()
        return 0 if found is None else found.committed

    def wait_for_commits(self, count: int = 1) -> None:
        """Wait until ``count`` further batches have been committed."""
        base = self.committed()
        wait_until(f"{count} commits", lambda: self.committed() >= base + count)

    def input(self) -> int:
        """Return the number of rows read."""
        found = self.progress()
        return 0 if found is None else found.input_tuples

    def members(self, module: str) -> list[psutil.Process]:
        """Return the processes of ``python -m MODULE``."""
        found = []
        for process in self.host.processes():
            with suppress(Exception):
                command = process.cmdline()
                if "-m" in command and command[command.index("-m") + 1] == module:
                    found.append(process)
        return found

    def kill_runtime(self) -> int:
        """SIGKILL the runtime alone; return the number of killed processes."""
        return self.kill(Target.DRIVER)

    def kill(self, target: Target) -> int:
        """SIGKILL the driver or its JVM; return the number of killed processes."""
        if target is Target.JVM:
            found = processes(self.host, "org.apache.spark.deploy.SparkSubmit")
        else:
            assert target is Target.DRIVER
            found = self.members("anabranch_runtime")
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return len(found)

    def stop(self, seconds: float = 120.0) -> None:
        """Stop the command with SIGTERM, and wait for its end."""
        for process in self.members("anabranch_client"):
            with suppress(Exception):
                process.send_signal(signal.SIGTERM)
        assert self.process is not None
        self.process.wait(seconds)

    def results(
        self, query: str, earlier: Mapping[Path, int] = NOBODY
    ) -> list[tuple[int, int, int]]:
        """Return the results of a query, sorted; ``earlier``: home -> first batch whose files don't
        count.
        """
        files = [str(file) for file in sorted((self.home / "results" / query).glob("*.parquet"))]
        for home, before in earlier.items():
            for file in sorted((home / "results" / query).glob("*.parquet")):
                number = re.match(r"\D*(\d+)", file.name)
                assert number is not None
                files += [str(file)] if int(number[1]) < before else []
        if not files:
            return []
        with duckdb.connect() as engine:
            return sorted(engine.read_parquet(files).select("x, y, z").fetchall())


def differences(
    up: HostedUp, ledger: Ledger, earlier: Mapping[Path, int] = NOBODY
) -> dict[str, str]:
    """Map queries to the differences of their results from the ledger; empty if all are exact.

    ``earlier``: other homes -> batch before which their results count as well.
    """
    found = {}
    for query in QUERIES:
        wanted, got = ledger.results(query), up.results(query, earlier)
        if wanted != got:
            lost, more = set(wanted) - set(got), len(got) - len(set(got))
            wrong = set(got) - set(wanted)
            found[query] = (
                f"{len(wanted)} wanted, {len(got)} found: {len(lost)} lost {sorted(lost)[:3]}, "
                f"{more} doubled, {len(wrong)} wrong {sorted(wrong)[:3]}"
            )
    return found


def await_all(up: HostedUp, ledger: Ledger, seconds: float = PATIENCE) -> None:
    """Wait until all rows have been read and committed."""
    wanted = sum(len(rows) for rows in ledger.rows.values())
    wait_until(f"all {wanted} rows to be read", lambda: up.input() >= wanted, seconds)
    assert up.input() == wanted


def started(world: Cluster, home: Path, *extra: str, host: Host | None = None) -> HostedUp:
    """Start ``anabranch up`` on a host (default: the driver's), with a new store and an empty
    Redis.
    """
    with world.redis() as server:
        server.flushall()
    up = HostedUp(world, host or world.driver, home, world.store(f"up-{time.time_ns()}"), extra)
    up.start()
    return up


def ready(world: Cluster, home: Path, *extra: str) -> HostedUp:
    """Start ``anabranch up`` as :func:`started`, and wait until it works and its queries are
    active.
    """
    up = started(world, home, *extra)
    up.wait("\nready\n")
    up.register()
    up.await_active()
    return up


#: Errors of calls to a pipeline whose processes were killed.
AWAY = (ClientError, redis.RedisError)

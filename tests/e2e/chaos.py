"""Random kills, pauses and restarts of every process of ``anabranch up``, under load.

``python -m tests.e2e.chaos --strikes 200 --seed 1`` starts ``anabranch up`` on a folder, feeds
files and messages (good and bad ones) to its streams, registers and withdraws queries, and strikes
at random: it kills or pauses one process, several, or ``up`` itself. Nothing but ``up`` is ever
started again. A pipeline that does not commit again by itself is a failure.

The ledger records the rows that the feeder has written, independently of the pipeline. At the end
DuckDB joins the ledger; every query's results must equal that join, none lost and none doubled.

``--json`` prints one line per strike: the struck processes, the kind of strike, and the seconds
until the next commit (for a pause: from its end).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import redis

from anabranch_client.errors import ClientError
from anabranch_client.processes.children import free_port
from anabranch_client.rest.api import Client
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.up import Target, Up

#: Target of a strike at ``up`` itself.
UP = "up"
#: Maximum seconds until the pipeline commits again, on the busiest machine.
PATIENCE = 300.0
#: Seconds between two rounds of the feeder.
PACE = 0.15
COLUMNS = (("id", "bigint"), ("k", "int"), ("m", "int"))
Row: TypeAlias = tuple[int, int, int]
#: Query id -> SQL; ``id`` is unique in a stream, so duplicate results are detected.
QUERIES = {
    "ab": "SELECT a.id AS x, b.id AS y FROM a JOIN b ON a.k = b.k",
    "bc": "SELECT b.id AS x, c.id AS y FROM b JOIN c ON b.m = c.m",
    "abc": "SELECT a.id AS x, b.id AS y, c.id AS z FROM a JOIN b ON a.k = b.k JOIN c ON b.m = c.m",
    "cd": "SELECT c.id AS x, d.id AS y FROM c JOIN d ON c.k = d.k AND c.m = d.m",
}
#: SQL of the guests: queries that are registered and deleted meanwhile.
GUEST = "SELECT a.id AS x, c.id AS y FROM a JOIN c ON a.k = c.k AND a.m = c.m"


class Blow(StrEnum):
    """Kind of a strike: SIGKILL, SIGSTOP for some seconds, or SIGTERM (of ``up`` only)."""

    KILL = "kill"
    PAUSE = "pause"
    STOP = "stop"


@dataclass
class Strike:
    """One strike and its consequences.

    Attributes:
        seconds: from the strike (of a pause: its end) to the next commit.
    """

    number: int
    targets: list[str]
    blow: Blow
    paused: float = 0.0
    seconds: float | None = None


@dataclass
class Ledger:
    """All rows of the streams, as written, and the number of bad units (files, messages)."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    bad_files: int = 0
    bad_messages: int = 0
    mended: int = 0

    def counts(self) -> dict[str, int]:
        """Return stream -> number of good rows."""
        return {name: len(rows) for name, rows in self.rows.items()}


class Feeder:
    """Writes good and bad input from a separate thread, never through the pipeline's processes.

    Stream ``a``: messages in a Redis Stream of another server; ``b``: Parquet files, bad ones are
    skipped; ``c``: JSON files; ``d``: Parquet files of a stream that stops at a bad one until an
    operator has it skipped.
    """

    def __init__(self, home: Path, server: str, service: str, seed: int) -> None:
        self.ledger = Ledger({name: [] for name in "abcd"})
        self._home, self._chance = home, random.Random(seed)
        self._redis, self._operator = redis.Redis.from_url(server), Client(service)
        self._halt, self._number = threading.Event(), 0
        #: Bad files of ``d``: when an operator repairs each, and which rows it should have had.
        self._broken: list[tuple[float, list[Row]]] = []
        #: Whether ``d`` stops at bad files now; if not, when it will again.
        self._stops, self._again = True, 0.0
        self._thread = threading.Thread(target=self._run, name="feeder")
        self.error: Exception | None = None
        for name in "bcd":
            (home / name).mkdir(parents=True)

    def start(self) -> None:
        """Start feeding."""
        self._thread.start()

    def finish(self) -> None:
        """Stop feeding, and repair the remaining bad files."""
        self._halt.set()
        self._thread.join()
        deadline = time.monotonic() + PATIENCE
        while (self._broken or self._stops) and time.monotonic() < deadline:
            self._mend(float("inf"))
            with contextlib.suppress(ClientError):
                self._operator.update_stream("d", on_bad_file="skip")
                self._stops = False
            time.sleep(0.5)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Stop feeding, without repairs."""
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._halt.wait(PACE):
                self._round()
        except (OSError, ValueError, AssertionError, redis.RedisError) as error:
            self.error = error

    def _round(self) -> None:
        self._mend(time.monotonic())
        name = self._chance.choice("aabcd")
        rows = self._some(name)
        bad = self._chance.random() < 0.08
        if name == "a":
            self._messages(rows, bad)
        elif name == "c":
            text = "".join(json.dumps(dict(zip("ikm", r, strict=True))) + "\n" for r in rows)
            text = text.replace('"i"', '"id"')
            if bad:
                text += '{"id": "no number", "k": 1}\nno object\n'
                self.ledger.bad_messages += 2
            self._file(name, text.encode(), ".json")
            self.ledger.rows[name] += rows
        elif not bad:
            self._file(name, _parquet(rows), ".parquet")
            self.ledger.rows[name] += rows
        else:
            self._bad_file(name, rows)

    def _messages(self, rows: Sequence[Row], bad: bool) -> None:
        with self._redis.pipeline(transaction=True) as pipe:
            for i, k, m in rows:
                pipe.xadd("load:a", {"data": json.dumps({"id": i, "k": k, "m": m})})
            if bad:
                pipe.xadd("load:a", {"data": '{"id": 99999999999999999999999, "k": 1, "m": 1}'})
                pipe.xadd("load:a", {"other": "field"})
                self.ledger.bad_messages += 2
            pipe.execute()
        self.ledger.rows["a"] += rows

    def _bad_file(self, name: str, rows: list[Row]) -> None:
        """Write a file with a damaged data page (and intact footer), or one that is not a Parquet
        file.
        """
        whole = _parquet(rows)
        if self._chance.random() < 0.5:
            cut = bytearray(whole)
            # Data pages begin after the magic number; the footer has what planning reads.
            cut[4 : 4 + (len(cut) // 4)] = os.urandom(len(cut) // 4)
            text = bytes(cut)
        else:
            text = b"this is not a parquet file"
        self._file(name, text, ".parquet")
        self.ledger.bad_files += 1
        if name == "d":
            self._broken.append((time.monotonic() + self._chance.uniform(1, 15), rows))

    def _mend(self, now: float) -> None:
        """Make ``d`` continue as an operator does: skip bad files, and write their rows to new
        ones.
        """
        due = [b for b in self._broken if b[0] <= now]
        if not due and (self._stops or now < self._again):
            return
        # The service may be down: retried in the next round.
        with contextlib.suppress(ClientError):
            if not due:
                if self._operator.stream("d").document()["source_status"]["state"] == "reading":
                    self._operator.update_stream("d", on_bad_file="stop")
                    self._stops = True
                return
            self._operator.update_stream("d", on_bad_file="skip")
            self._stops, self._again = False, now + 4.0
            for bad in due:
                self._broken.remove(bad)
                self._file("d", _parquet(bad[1]), ".parquet")
                self.ledger.rows["d"] += bad[1]
                self.ledger.mended += 1

    def _some(self, name: str) -> list[Row]:
        # Few partners per row, or an hour's results would fill the disk.
        count, spread = self._chance.randrange(1, 25), 400 if name == "d" else 4000
        found = []
        for _ in range(count):
            self._number += 1
            found.append(
                (self._number, self._chance.randrange(spread), self._chance.randrange(spread))
            )
        return found

    def _file(self, name: str, content: bytes, suffix: str) -> Path:
        self._number += 1
        folder = self._home / name
        partial = folder / f".{self._number}"
        partial.write_bytes(content)
        path = folder / f"{self._number:09d}{suffix}"
        partial.rename(path)
        return path


def _parquet(rows: Sequence[Row]) -> bytes:
    sink = pa.BufferOutputStream()
    columns = list(zip(*rows, strict=True))
    arrays = {
        "id": pa.array(columns[0], pa.int64()),
        "k": pa.array(columns[1], pa.int32()),
        "m": pa.array(columns[2], pa.int32()),
    }
    pq.write_table(pa.table(arrays), sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


class Chaos:
    """One chaos run: an ``up``, a feeder, guest queries, and strikes."""

    def __init__(self, folder: Path, seed: int, server: str) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.load = folder / "load"
        self.server = server
        port = free_port()
        own = urlsplit(server).netloc
        options: tuple[str, ...] = (
            "--port",
            str(port),
            "--allow-path",
            str(self.load),
            "--allow-host",
            own,
        )
        #: Every other seed has a standby runtime.
        self.standby = seed % 2 == 0
        if self.standby:
            options = (*options, "--standby")
        self.up = Up(folder / "home", folder / "up-0.log", arguments=options)
        self.starts = 0
        url = f"http://127.0.0.1:{port}"
        self.feeder = Feeder(self.load, server, url, seed + 1)
        self.client = Client(url)
        self.strikes: list[Strike] = []
        #: Guest -> rows per stream that were certainly read before its activation, and rows per
        #: stream when it was deleted.
        self.guests: dict[str, tuple[dict[str, int], dict[str, int] | None]] = {}

    # --- the world -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start ``up``, as after a crash: without any cleaning."""
        self.up.out = self.folder / f"up-{self.starts}.log"
        self.starts += 1
        self.up.start()

    def end(self, number: signal.Signals) -> None:
        """Send ``up`` a signal and wait until it has ended."""
        assert self.up.process is not None
        self.up.process.send_signal(number)
        self.up.ended(120)

    def begin(self) -> None:
        """Start all processes, register streams and queries, start feeding."""
        self.start()
        self._until("the service answers", lambda: self.client.streams() is not None)
        skip = {"on_bad_file": "skip"}
        self._add("a", "redis-stream", None, {"url": self.server, "keys": "load:a"})
        self._add("b", "files", self.load / "b", {"type": "parquet", **skip})
        self._add("c", "files", self.load / "c", {"type": "json", **skip})
        self._add("d", "files", self.load / "d", {"type": "parquet"})
        for name, sql in QUERIES.items():
            self.client.create_query(sql, name=name)
        for name in QUERIES:
            self._until(f"{name} is active", partial(self._is_active, name))
        self.feeder.start()
        self._until("the first commit", lambda: self._committed() > 0)

    def _add(self, name: str, format: str, path: Path | None, options: dict[str, str]) -> None:
        source = {"format": format, "path": None if path is None else str(path)}
        self.client.create_stream(name, COLUMNS, source={**source, "options": options})

    def strike(self, number: int) -> Strike:
        """Strike at random, sometimes several processes; wait until the pipeline commits again."""
        known = [t for t in Target if self.standby or t is not Target.STANDBY]
        some = [t for t in known if t is not Target.ALL]
        targets: list[Target] = [self.chance.choice(known)]
        if targets[0] is not Target.ALL and self.chance.random() < 0.2:
            targets = self.chance.sample(some, 2)
        blow = self.chance.choices([Blow.KILL, Blow.PAUSE, Blow.STOP], [6, 3, 1])[0]
        self_struck = blow is Blow.STOP or (blow is Blow.KILL and self.chance.random() < 0.15)
        strike = Strike(number, [UP] if self_struck else [str(t) for t in targets], blow)
        self._rewire(number)
        began = time.monotonic()
        if self_struck:
            self.end(signal.SIGKILL if blow is Blow.KILL else signal.SIGTERM)
            time.sleep(self.chance.choice([0.0, 0.0, 2.0]))
            began = time.monotonic()
            self.start()
        else:
            victims = [p for t in targets for p in self.up.find(t)]
            if blow is Blow.KILL:
                _signal(victims, signal.SIGKILL)
            else:
                strike.paused = self.chance.choice([0.5, 2.0, 6.0])
                _signal(victims, signal.SIGSTOP)
                time.sleep(strike.paused)
                began = time.monotonic()
                _signal(victims, signal.SIGCONT)
        self.strikes.append(strike)
        if self.chance.random() < 0.15 and number % 10:
            # A second strike during recovery.
            time.sleep(self.chance.uniform(0, 8))
            return strike
        base = self._committed_or(-1)
        if base < 0:
            self._until("the service answers", lambda: self._committed_or(-1) >= 0)
            base = self._committed_or(-1)
        self._until("a commit", lambda: self._committed_or(-1) > base)
        strike.seconds = time.monotonic() - began
        return strike

    def _rewire(self, number: int) -> None:
        """Register or delete a guest query; sometimes change the optimiser."""
        with contextlib.suppress(ClientError):
            staying = [g for g, (_, gone) in self.guests.items() if gone is None]
            if staying and self.chance.random() < 0.4:
                name = self.chance.choice(staying)
                self.client.delete_query(name)
                self.guests[name] = (self.guests[name][0], self.feeder.ledger.counts())
            elif len(staying) < 3:
                name = f"guest{number}"
                self.client.create_query(GUEST, name=name)
                self.guests[name] = (self.feeder.ledger.counts(), None)
            if self.chance.random() < 0.2:
                name = self.chance.choice(["clash", "individual", "shared"])
                self.client.update_settings(optimizer=name)

    # --- the verdict ---------------------------------------------------------------------------

    def verdict(self) -> list[str]:
        """Stop feeding, wait until all is read, stop ``up`` normally, and compare results."""
        self.feeder.finish()
        counts = self.feeder.ledger.counts()
        self._until(
            "everything is read",
            lambda: all(self._read(name) >= count for name, count in counts.items()),
        )
        problems = [f"{n}: {self._read(n)} rows read" for n, c in counts.items() if
                    self._read(n) != c]  # fmt: skip
        time.sleep(2)
        statuses = {name: self._status(name) for name in QUERIES}
        problems += [f"{n} is {s}" for n, s in statuses.items() if s != "active"]
        unread = self.client.stream("b").document()["unread"]["pieces"]
        if unread == 0 and self.feeder.ledger.bad_files:
            problems.append("no bad file of b is on record")
        self.end(signal.SIGTERM)
        return problems + self._compare()

    def _compare(self) -> list[str]:
        db = duckdb.connect()
        for name, rows in self.feeder.ledger.rows.items():
            columns = list(zip(*rows, strict=True)) or [(), (), ()]
            table = pa.table({c: pa.array(v, pa.int64()) for c, v in zip(
                ("id", "k", "m"), columns, strict=True)})  # fmt: skip
            db.register(f"{name}_rows", table)
            db.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
        problems = []
        for query, sql in QUERIES.items():
            found = self._results(query) or f"{sql} LIMIT 0"
            lost = _count(db, f"({sql}) EXCEPT ALL ({found})")
            more = _count(db, f"({found}) EXCEPT ALL ({sql})")
            if lost or more:
                problems.append(f"{query}: {lost} lost, {more} too many")
            if not _count(db, sql):
                problems.append(f"{query}: nothing to be found")
        for guest in self.guests:
            found = self._results(guest)
            if found and (more := _count(db, f"{found} EXCEPT ALL {GUEST}")):
                problems.append(f"{guest}: {more} too many")
        return problems

    def _results(self, query: str) -> str:
        """Return SQL that reads a query's results; empty if there are no files."""
        folder = self.up.home / "results" / query
        return f"SELECT * FROM '{folder}/*.parquet'" if any(folder.glob("*.parquet")) else ""

    # --- looking -------------------------------------------------------------------------------

    def _is_active(self, name: str) -> bool:
        return self._status(name) == "active"

    def _status(self, name: str) -> str:
        return self.client.query(name).status

    def _read(self, name: str) -> int:
        info = self.client.stream(name).document()
        return int(info["input_tuples"]) - int(info["invalid_tuples"])

    def _committed(self) -> int:
        return int(self.client.current_epoch().document()["runtime"]["committed"])

    def _committed_or(self, default: int) -> int:
        try:
            return self._committed()
        except (ClientError, KeyError, TypeError):
            return default

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        """Poll until ``holds()`` is true; failing requests are ignored."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self.feeder.error is None, self.feeder.error
            if self.up.process is not None and self.up.process.poll() is not None:
                raise AssertionError(f"up ended by itself; its last words: {_tail(self.up.out)}")
            with contextlib.suppress(ClientError):
                if holds():
                    return
            time.sleep(0.05)
        raise AssertionError(f"{what}: not within {PATIENCE:.0f} s; {_tail(self.up.out)}")


def _count(db: duckdb.DuckDBPyConnection, sql: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM ({sql})").fetchall()[0][0])


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _tail(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-8:])


def run(
    folder: Path,
    strikes: int,
    seed: int,
    *,
    seconds: float = float("inf"),
    as_json: bool = False,
) -> list[str]:
    """Strike ``strikes`` times, or until ``seconds`` have passed; return errors in the results."""
    deadline = time.monotonic() + seconds
    with redis_url() as server:
        chaos = Chaos(folder, seed, server)
        try:
            chaos.begin()
            for number in range(strikes):
                if time.monotonic() > deadline:
                    break
                strike = chaos.strike(number)
                if as_json:
                    sys.stdout.write(json.dumps(asdict(strike)) + "\n")
                    sys.stdout.flush()
                else:
                    sys.stderr.write(f"{number + 1} of {strikes}: {strike}\n")
                time.sleep(chaos.chance.uniform(0, 2))
            problems = chaos.verdict()
        finally:
            chaos.feeder.close()
            chaos.client.close()
            chaos.up.close()
    sys.stderr.write(summary(chaos) + "\n")
    return problems


def summary(chaos: Chaos) -> str:
    """Counts of the run, and the seconds to the next commit by kind of strike and process."""
    ledger = chaos.feeder.ledger
    lines = [
        f"{len(chaos.strikes)} strikes, {chaos.starts} starts of up, {ledger.counts()} rows,"
        f" {ledger.bad_files} bad files ({ledger.mended} mended), {ledger.bad_messages} bad"
        f" messages, {len(chaos.guests)} guests"
    ]
    for blow in Blow:
        for target in (*Target, UP):
            seconds = [
                s.seconds
                for s in chaos.strikes
                if s.blow is blow and s.targets == [target] and s.seconds is not None
            ]
            if seconds:
                lines.append(
                    f"{blow} {target}: {len(seconds)} times, median"
                    f" {statistics.median(seconds):.1f} s, most {max(seconds):.1f} s"
                )
    return "\n".join(lines)


def main() -> int:
    """Run from the command line; the exit code says whether all results were exact."""
    parser = argparse.ArgumentParser(prog="tests.e2e.chaos", description=__doc__)
    parser.add_argument("--strikes", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of strikes, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON line per strike")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-chaos-"))
    limit = 60 * options.minutes
    problems = run(folder, options.strikes, options.seed, seconds=limit, as_json=options.json)
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    if problems:
        sys.stderr.write(f"left in {folder}\n")
        return 1
    sys.stderr.write("exact\n")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

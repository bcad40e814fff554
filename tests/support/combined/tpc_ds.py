"""TPC-DS as continuous queries, compared with DuckDB: ``python -m tests.support.combined.tpc_ds``.

Every query runs in a separate pipeline, with the real registration, planner, driver and tasks in
this process. Its tables arrive as streams of changes, cut at random into batches, and some of their
rows are deleted again. At the end, the rows of the query must equal DuckDB's result over the
tables. The last column of the printed table is the time of the run in seconds.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Optimizer, Plan
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import JoinQuery, StreamKind
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, read_sql
from anabranch_planner.plans.optimise import Options
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.sql.named import names_read
from anabranch_runtime.columns.arrow_types import spark_type
from tests.support.combined.answers import Answer
from tests.support.combined.pipeline import Combined
from tests.support.combined.registry import Registry
from tests.support.combined.streams import Kind, RandomStream
from tests.support.combined.tpc_ds_answers import Oracle
from tests.support.combined.tpc_ds_texts import text_of, widened
from tests.support.surroundings.redis import redis_url
from tests.support.surroundings.tpc import Workload, workload

#: Number of batches into which a table is cut.
BATCHES = 4
#: Share of a table's rows that are inserted a second time, and then deleted.
_DELETED = 0.05
#: Maximum number of aliases of a join; no query of the benchmark has as many.
_WIDEST = 64
#: Time limit of planning in seconds.
_PLANNING = 3.0
#: Operations of an insert and of a delete.
_INSERT, _DELETE = "c", "d"


@dataclass(slots=True)
class TableStream(RandomStream):
    """A TPC-DS table as a stream of changes."""

    table: pa.Table = field(default_factory=lambda: pa.table({}))
    _pieces: list[pa.Table] = field(default_factory=list)

    @property
    def record(self) -> StreamRecord:
        """The stream's record as the service stores it."""
        return record_of(self.name, self.table.schema, str(self.folder))

    def cut(self, rng: Random, batches: int) -> None:
        """Cut the table at random into parts for batches, with some rows that are deleted later."""
        drawn = np.random.default_rng(rng.randrange(1 << 32))
        rows = self.table.num_rows
        gone = np.flatnonzero(drawn.random(rows) < _DELETED)
        order = np.concatenate([np.arange(rows), gone, gone])
        operations = np.repeat([_INSERT, _DELETE], [rows + len(gone), len(gone)])
        number = drawn.integers(0, batches, len(order))
        whole = self.table.take(order).append_column("op", pa.array(operations))
        self._pieces = [whole.filter(pa.array(number == n)) for n in range(batches)]

    def put(self, number: int) -> None:
        """Write the part number ``number``."""
        piece = self._pieces[number]
        if piece.num_rows:
            partial_file = self.folder / f".{number}"
            pq.write_table(piece, partial_file)
            partial_file.rename(self.folder / f"{number:06d}.parquet")


def record_of(name: str, schema: pa.Schema, folder: str) -> StreamRecord:
    """Return the service's record of a table as a stream of changes."""
    columns = [ColumnRecord(name=c.name, type=str(spark_type(c.type))) for c in schema]
    return StreamRecord(
        name=name,
        columns=(*columns, ColumnRecord(name="op", type="string")),
        event_time=None,
        lateness=None,
        latest=(),
        retain=None,
        kind=StreamKind.CHANGES,
        changes=ChangeFormat("op"),
        source=SourceRecord(format="files", path=folder),
        registration=f"{name}-1",
    )


def _streams(tables: Mapping[str, pa.Table], folder: Path, _: Random) -> dict[str, RandomStream]:
    found: dict[str, RandomStream] = {}
    for name, table in tables.items():
        home = folder / name
        home.mkdir(parents=True)
        found[name] = TableStream(name, Kind.CHANGES, home, table=table)
    return found


def _plan_in_time(
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    optimizer: Optimizer,
    parallelism: int,
    epoch: int,
) -> Plan:
    """Plan as in the service, with the best plan found in :data:`_PLANNING` seconds."""
    options = Options(
        optimizer=optimizer,
        parallelism=parallelism,
        deadline=Deadline(time.monotonic, seconds=_PLANNING),
    )
    return optimise(queries, statistics, options)


class Benchmarked(Combined):
    """A run of one statement over TPC-DS tables.

    Attributes:
        found: the rows at the end, in the types of the result files.
    """

    def __init__(
        self,
        folder: Path,
        redis: str,
        seed: int,
        tables: Mapping[str, pa.Table],
        sql: str,
        *,
        batches: int = BATCHES,
    ) -> None:
        self.sql, self.batches = sql, batches
        self.found: list[tuple[Any, ...]] = []
        drawn = partial(_streams, tables)
        super().__init__(folder, redis, seed, calm=True, planner=_plan_in_time, drawn=drawn)
        self.registry.widest = _WIDEST

    def _play(self) -> None:
        self.registry.register("q", self.sql, past=False)
        self._changed = True
        self._start()
        for stream in self.streams.values():
            assert isinstance(stream, TableStream)
            stream.cut(self.rng, self.batches)
        for number in range(self.batches):
            for stream in self.streams.values():
                assert isinstance(stream, TableStream)
                stream.put(number)
            self.turn()
        self.settle()
        view = self.registry.forms["q"].view
        self.found = Answer(self.settings.results / "q", view).rows()
        self.driver.tables.close()


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a query of the benchmark.

    Attributes:
        refusal: why the query was refused; empty: it was registered.
        difference: difference from DuckDB's result; None: equal.
        rows: number of rows of DuckDB's result. ``seconds``: time of the run.
    """

    number: int
    refusal: str = ""
    difference: str | None = None
    rows: int = 0
    seconds: float = 0.0

    def line(self) -> str:
        """Return the outcome as a line of the table."""
        verdict = "equal" if self.difference is None else self.difference
        verdict = f"refused: {self.refusal}" if self.refusal else verdict
        registered = "no" if self.refusal else "yes"
        return (
            f"{self.number:>5}  {registered:<10}  {self.rows:>6}  {self.seconds:>7.1f}  {verdict}"
        )


HEADING = "query  registered    rows  seconds  result"


class Benchmark:
    """The benchmark's tables and statements; Redis at ``redis`` is used by the runs."""

    def __init__(self, given: Workload, redis: str) -> None:
        self.given, self.redis = given, redis
        files = sorted(given.folder.glob("*.parquet"))
        self.tables = widened({file.stem: pq.read_table(file) for file in files})
        self.oracle = Oracle(self.tables)

    def refusal(self, sql: str) -> str:
        """Return why the registration refuses a statement; empty if it does not."""
        records = [record_of(name, table.schema, "") for name, table in self.tables.items()]
        registry = Registry(records, Keys("test"), widest=_WIDEST)
        try:
            registry.register("q", sql, past=False)
        except PlannerError as error:
            return f"{error.code}: {error.message}"
        return ""

    def run(self, number: int, folder: Path, seed: int, batches: int = BATCHES) -> Result:
        """Run a query in ``folder``, and compare its rows with DuckDB's."""
        return self._result(number, lambda sql: self._rows(sql, folder, seed, batches))

    def run_apart(self, number: int, folder: Path, seed: int, batches: int, limit: float) -> Result:
        """Do the same in a separate process, which is killed after ``limit`` seconds."""
        return self._result(
            number, lambda sql: _apart(partial(self._rows, sql, folder, seed, batches), limit)
        )

    def _rows(self, sql: str, folder: Path, seed: int, batches: int) -> list[tuple[Any, ...]]:
        read = {name.lower() for name in names_read(read_sql(sql))}
        tables = {name: table for name, table in self.tables.items() if name in read}
        run = Benchmarked(folder, self.redis, seed, tables, sql, batches=batches)
        run.play()
        return run.found

    def _result(self, number: int, rows: Callable[[str], list[tuple[Any, ...]]]) -> Result:
        sql = text_of(self.given, number)
        refusal = self.refusal(sql)
        if refusal:
            return Result(number, refusal)
        begun = time.monotonic()
        try:
            found = rows(sql)
        except (RuntimeError, TimeoutError) as error:
            return Result(number, "", f"failed: {error!r}", 0, time.monotonic() - begun)
        seconds = time.monotonic() - begun
        compared = self.oracle.compare(number, sql, found)
        return Result(number, "", compared.difference, compared.rows, seconds)


def _apart(made: Callable[[], list[tuple[Any, ...]]], limit: float) -> list[tuple[Any, ...]]:
    """Return the value of ``made()``, computed in a forked process.

    Raises:
        TimeoutError: it takes more than ``limit`` seconds.
        RuntimeError: ``made()`` fails.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def child() -> None:
        try:
            found: Any = made()
        except BaseException as error:  # noqa: BLE001 - a row of the table
            found = repr(error)[:2000]
        theirs.send(found)

    process = context.Process(target=child, daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit):
            raise TimeoutError(f"no answer within {limit:g} s")
        found = ours.recv()
    except EOFError:
        raise RuntimeError("the process has died") from None
    finally:
        process.kill()
        process.join()
    if isinstance(found, str):
        raise RuntimeError(found)
    rows: list[tuple[Any, ...]] = found
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Print the table; returns 1 if a result differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.combined.tpc_ds")
    parser.add_argument("queries", nargs="*", type=int, help="numbers; all if there are none")
    parser.add_argument("--scale", type=float, default=0.01, help="scale factor of the tables")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of a query")
    parser.add_argument("--data", type=Path, help="folder that keeps the generated tables")
    chosen = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory() as folder, redis_url() as url:
        given = workload("tpcds", chosen.data or Path(folder), chosen.scale)
        benchmark = Benchmark(given, url)
        sys.stdout.write(f"{HEADING}\n")
        done = []
        for number in chosen.queries or sorted(given.queries):
            home = Path(folder) / f"q{number}"
            done.append(
                benchmark.run_apart(number, home, chosen.seed, chosen.batches, chosen.limit)
            )
            sys.stdout.write(f"{done[-1].line()}\n")
            sys.stdout.flush()
            shutil.rmtree(home, ignore_errors=True)
    registered = [one for one in done if not one.refusal]
    equal = [one for one in registered if one.difference is None]
    empty = [one.number for one in equal if not one.rows]
    sys.stdout.write(
        f"{len(done)} queries, {len(registered)} registered, {len(equal)} equal, "
        f"{len(empty)} of them empty {empty or ''}\n"
    )
    return int(len(equal) < len(registered))


if __name__ == "__main__":
    sys.exit(main())

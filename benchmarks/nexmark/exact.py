"""Exactness of Nexmark's queries: all in one pipeline, fed in random batches, compared with DuckDB.

The real registration, planner, driver and tasks run in this process; tasks and drivers are killed
and plans are random, as in every run of :class:`tests.support.combined.pipeline.Combined`. Results
are compared at the end; with ``--always``, the results of queries without parts are compared after
every batch.
"""

from __future__ import annotations

import argparse
import datetime as dt
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.joins import StreamKind
from anabranch_runtime.columns.arrow_types import spark_type
from benchmarks.nexmark.generator import Events, generate
from benchmarks.nexmark.statements import QUERIES, STREAMS, Nexmark
from benchmarks.report.figures import document, line, show, tell
from benchmarks.report.grids import Grid
from tests.support.combined.grammar import Statement, Text
from tests.support.combined.pipeline import Combined
from tests.support.combined.streams import Kind, RandomStream
from tests.support.scenarios.run import seeds_of
from tests.support.surroundings.redis import redis_url

#: Shortly before midnight, so that events are on two days, and times of day matter.
BEGIN = dt.datetime(2024, 1, 1, 23, 59, 30, tzinfo=dt.UTC)
#: Lateness in microseconds. Events arrive in the order of their times, so none is late; but windows
#: end.
LATENESS = 5_000_000
TABLE = "side_input"
#: Beginnings of the names of events in a run that are failures.
_FAILURES = ("task failed", "driver gone", "restart")


def record(name: str, table: pa.Table, folder: Path) -> StreamRecord:
    """Return the service's record of one of Nexmark's streams, read from files in ``folder``."""
    looked_up = name == TABLE
    columns = tuple(ColumnRecord(name=f.name, type=str(spark_type(f.type))) for f in table.schema)
    return StreamRecord(
        name=name,
        columns=columns,
        event_time=None if looked_up else "date_time",
        lateness=None if looked_up else LATENESS,
        latest=("key",) if looked_up else (),
        retain=None if looked_up else 0,
        kind=StreamKind("table" if looked_up else "stream"),
        source=SourceRecord(format="files", path=str(folder)),
        registration=f"{name}-1",
    )


@dataclass(slots=True)
class GeneratedStream(RandomStream):
    """One of Nexmark's streams, whose generated rows are written slice by slice, in order."""

    events: Events = field(kw_only=True)

    @property
    def record(self) -> StreamRecord:
        """The stream's record as the service stores it."""
        return record(self.name, self.events.table, self.folder)

    def write_upto(self, number: int) -> None:
        """Write the rows of events before number ``number`` that are not written yet, as a file."""
        begun, end = len(self.rows), self.events.upto(number)
        if end == begun:
            return
        partial = self.folder / f".{begun}"
        pq.write_table(self.events.table.slice(begun, end - begun), partial)
        self.rows += [("c", ())] * (end - begun)
        partial.rename(self.folder / f"{end:08d}.parquet")

    @property
    def late(self) -> int:
        """Number of late rows: none, since events are ordered by time."""
        return 0

    def fill(self, connection: duckdb.DuckDBPyConnection, batch: int) -> bool:
        """Register the rows that the pipeline has read up to ``batch`` as a table of DuckDB."""
        connection.register(self.name, self.events.table.slice(0, self.ends[batch][0]))
        return True


class NexmarkRun(Combined):
    """A random run of Nexmark's ``queries`` over ``events`` events in ``batches`` batches.

    Attributes:
        calm: whether nothing fails and plans are the optimiser's instead of random ones.
        always: whether results are compared after every batch, and not only at the end.
        compared: query -> number of rows of its answer at the end, which equals DuckDB's.
    """

    def __init__(
        self,
        folder: Path,
        redis: str,
        seed: int,
        queries: Sequence[Nexmark],
        *,
        events: int,
        batches: int,
        rate: float,
        calm: bool = False,
        always: bool = True,
    ) -> None:
        self.always = always
        self.queries, self.count, self.batches = queries, events, batches
        self.generated = generate(events, rate=rate, seed=seed, begin=BEGIN)
        self.compared: dict[str, int] = {}
        self.given: dict[str, GeneratedStream] = {}
        super().__init__(folder, redis, seed, calm=calm, drawn=self._streams)

    def _streams(self, folder: Path, rng: Random) -> dict[str, RandomStream]:
        for name in STREAMS:
            home = folder / name
            home.mkdir(parents=True)
            kind = Kind.TABLE if name == TABLE else Kind.INSERTS
            self.given[name] = GeneratedStream(name, kind, home, events=self.generated[name])
        return dict(self.given)

    def _play(self) -> None:
        for query in self.queries:
            text = Text(query.sql, query.oracle)
            self.statements[query.name] = Statement(text, (), frozenset(), False, {})
            self.registry.register(query.name, query.sql, past=False)
            self.registered[query.name] = query.sql
        self._changed = True
        self._start()
        cuts = sorted(self.rng.sample(range(1, self.count), self.batches - 1))
        for cut in (*cuts, self.count):
            for stream in self.given.values():
                stream.write_upto(cut)
            self.turn()
        self.settle()
        if not self.always:
            self._checked = self.driver.state.next_batch - 1
        self.check()
        for name in self.registered:
            (row,) = self._duck.execute(f"SELECT count(*) FROM {name}").fetchall()
            self.compared[name] = row[0]
        self.driver.tables.close()
        if self._watch is not None:
            self._watch.ended(self.driver.state)

    def kept(self, name: str) -> list[str]:
        """Return the streams whose tuples a query, or a part of its statement, stores for ever
        according to its notes; a part that is read as a stream is called ``parts``.
        """
        found = set[str]()
        for one in self.registry.records:
            if name in (one.id, one.part_of):
                meaning = one.normalised
                found |= {a.stream for a in meaning.aliases if a.alias in meaning.unbounded}
        return sorted({stream if stream in STREAMS else "parts" for stream in found})


def exact(
    seed: int,
    queries: Sequence[Nexmark] = QUERIES,
    *,
    events: int,
    batches: int,
    rate: float,
    calm: bool = False,
    always: bool = True,
) -> NexmarkRun:
    """Run Nexmark's ``queries`` with a seed, and compare their results with DuckDB's.

    Raises:
        AssertionError: a result differs from DuckDB's.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with redis_url() as url, tempfile.TemporaryDirectory(prefix="anabranch-nexmark-") as folder:
        run = NexmarkRun(
            *(Path(folder), url, seed, queries),
            events=events,
            batches=batches,
            rate=rate,
            calm=calm,
            always=always,
        )
        run.play()
        return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds and print the rows of all answers; returns 1 if an answer is wrong or empty."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark exact",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--seeds", default="1", help="seeds, for example 1,4,7-9")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--rate", type=float, default=200.0, help="events a second of event time")
    parser.add_argument("--queries", nargs="+", choices=[q.name for q in QUERIES], default=None)
    parser.add_argument("--always", action="store_true", help="compare after every batch")
    parser.add_argument("--calm", action="store_true", help="without failures and odd plans")
    options = parser.parse_args(arguments)
    load, runs, failed = os.getloadavg(), dict[int, NexmarkRun](), list[int]()
    for seed in seeds_of(options.seeds):
        try:
            runs[seed] = _told(seed, options)
        except AssertionError as error:
            tell(f"seed {seed}: {error}")
            failed.append(seed)
    tell(f"failed: {failed}")
    if failed:
        return 1
    found = _document(options, load, list(runs.values()))
    if options.json:
        sys.stdout.write(line(found) + "\n")
    else:
        show([grid.rich() for grid in tables(found)])
    return 0


def _told(seed: int, options: argparse.Namespace) -> NexmarkRun:
    """Run one seed, and print a line about it.

    Raises:
        AssertionError: a result differs from DuckDB's, or has no rows.
    """
    begun = time.monotonic()
    run = exact(
        seed,
        [q for q in QUERIES if options.queries is None or q.name in options.queries],
        events=options.events,
        batches=options.batches,
        rate=options.rate,
        calm=options.calm,
        always=options.always,
    )
    tell(f"seed {seed}: {run.events['compared']} comparisons, {time.monotonic() - begun:.0f} s")
    empty = [name for name, count in run.compared.items() if not count]
    if empty:
        raise AssertionError(f"no rows: {', '.join(empty)}")
    return run


def _document(
    options: argparse.Namespace, load: tuple[float, ...], runs: Sequence[NexmarkRun]
) -> dict[str, Any]:
    """Return the line of figures: rows of every answer by seed, and counts of all runs."""
    events = sum((run.events for run in runs), Counter[str]())
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    return document("nexmark", settings, load) | {
        "part": "exact",
        "rows": {name: [run.compared[name] for run in runs] for name in runs[0].compared},
        "kept": {name: runs[0].kept(name) for name in runs[0].compared},
        "comparisons": events["compared"],
        "batches": events["batches"],
        "failures": sum(n for what, n in events.items() if what.startswith(_FAILURES)),
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a line per query, with the number of rows of its answer."""
    rows = tuple(
        (
            query.name,
            query.about,
            " / ".join(f"{count:,}" for count in entry["rows"][query.name]),
            ", ".join(entry["kept"][query.name]),
            query.note,
        )
        for query in QUERIES
        if query.name in entry["rows"]
    )
    title = (
        f"Answers of {entry['settings']['events']:,} events, equal to DuckDB's:"
        f" {entry['comparisons']:,} comparisons, {entry['batches']} batches,"
        f" {entry['failures']} failures of tasks and drivers"
    )
    return [Grid(title, ("query", "answer", "rows", "kept for ever", "deviation"), rows)]

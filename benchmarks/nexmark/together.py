"""CPU time of Nexmark's join queries in one pipeline, compared with one pipeline per query.

Every pipeline is the real system (Redis, service, Spark's runtime as processes), live, over the
same recorded events, and reads only the streams of its queries. CPU seconds are summed over the
whole tree of processes, from the second batch (the first one starts Spark's workers and warms up)
until every view includes the last batch. Every round runs each single query and then all queries
together, so that disturbances affect both. The results of every run are compared with DuckDB's; if
they differ, no figures are reported.

*Variants* are further joins of two or three streams, made from four templates in turn, with
different categories, states and least prices.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from anabranch_client.replay.scenario import RecordedStream
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.rest.streams import StreamOptions
from anabranch_runtime.columns.arrow_types import spark_type
from benchmarks.command import Benchmark, made, run_benchmark, spread
from benchmarks.kinds import KindMeter
from benchmarks.nexmark.answers import Answers, forms_of
from benchmarks.nexmark.exact import BEGIN, TABLE
from benchmarks.nexmark.generator import CYCLE, Events, generate, write
from benchmarks.nexmark.statements import JOINS, QUERIES, STREAMS, Nexmark
from benchmarks.nexmark.variants import variants
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.session import PATIENCE, Session, session

#: Seconds without a change of its progress after which a pipeline is finished.
_QUIET = 3.0
#: Seconds after the last change at which CPU time is read.
_SETTLED = 0.5
_MEBI = 2**20


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one pipeline with some of Nexmark's queries.

    Attributes:
        seconds: time from the second batch to the last change of the progress.
        cpu: kind of process -> CPU seconds over about the same time.
        rows: query -> number of rows of its result.
    """

    seconds: float
    cpu: dict[str, float]
    batches: int
    state_bytes: int
    rows: dict[str, int]

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all processes."""
        return sum(self.cpu.values())

    def to_json(self) -> dict[str, Any]:
        """The cost as part of the benchmark's line."""
        return {
            "seconds": round(self.seconds, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "cpu_by_kind": {kind: round(spent, 2) for kind, spent in self.cpu.items()},
            "batches": self.batches,
            "state_bytes": self.state_bytes,
            "rows": self.rows,
        }


@dataclass(frozen=True, slots=True)
class Input:
    """Generated events, and their files as recorded streams."""

    streams: dict[str, Events]
    recorded: tuple[RecordedStream, ...]

    @classmethod
    def of(cls, events: int, batches: int, rate: float, folder: Path) -> Input:
        """Generate ``events`` events, rounded up to equal batches of whole cycles of the event
        model.
        """
        cycles = -(-events // (CYCLE * batches))
        streams = generate(cycles * CYCLE * batches, rate=rate, begin=BEGIN)
        paths = write(streams, folder)
        return cls(
            streams,
            tuple(_recorded(name, one, paths[name], batches) for name, one in streams.items()),
        )

    def read_by(self, queries: Sequence[Nexmark]) -> tuple[RecordedStream, ...]:
        """Return the streams that some of ``queries`` read."""
        forms = forms_of(self.streams, queries)
        joins = (join for form in forms.values() for join in form.planned)
        read = {relation.stream for join in joins for relation in join.relations}
        return tuple(one for one in self.recorded if one.name in read)


def _recorded(name: str, events: Events, path: Path, batches: int) -> RecordedStream:
    table = events.table
    plain = StreamOptions(event_time="date_time", lateness="5 seconds")
    looked_up = StreamOptions(kind="table", key=["key"])
    rows = table.num_rows if name == TABLE else table.num_rows // batches
    return RecordedStream(
        *(name, path, rows, table.num_rows),
        tuple((field.name, str(spark_type(field.type))) for field in table.schema),
        looked_up if name == TABLE else plain,
    )


def cost(queries: Sequence[Nexmark], given: Input, home: Path, *, tasks: int) -> Cost:
    """Run ``queries`` in one pipeline below the folder ``home``; return its cost.

    Raises:
        WrongResultError: a result differs from DuckDB's.
        ClientError: a process failed.
        TimeoutError: the pipeline does not finish.
    """
    streams = given.read_by(queries)
    try:
        with session(home, streams, [], master=f"local[{tasks}]") as system:
            for query in queries:
                system.client.create_query(query.sql, name=query.name)
            system.start()
            system.gate(1)
            system.wait_for_batches(1)
            time.sleep(_SETTLED)
            meter, began = KindMeter(system.roots, _SETTLED), time.monotonic()
            meter.start()
            try:
                system.gate(None)
                ended, cpu, last = _ended(system, meter, {s.name: s.rows for s in streams})
            finally:
                meter.stop()
            system.pipeline.finish_runtime()
            answers = Answers(given.streams, queries, system.pipeline.spec.results)
            rows = {query.name: answers.check(query) for query in queries}
            answers.close()
            return Cost(ended - began, cpu, last.committed, last.resources.state_bytes, rows)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _ended(
    system: Session, meter: KindMeter, rows: Mapping[str, int]
) -> tuple[float, dict[str, float], Progress]:
    """Wait until the pipeline is finished; return the time of the last change of its progress, the
    CPU seconds of each kind until shortly after it, and the progress.
    """
    begun = moved = time.monotonic()
    seen: Any = None
    cpu: dict[str, float] = {}
    while time.monotonic() < begun + PATIENCE:
        system.pipeline.check()
        progress = system.pipeline.channel.progress()
        if progress is not None:
            read = {name: progress.streams.get(name, {}).get("input", 0) for name in rows}
            lag = sum(progress.telemetry.view_lag.values())
            now = (progress.committed, progress.shown, lag)
            if now != seen or lag or read != rows:
                seen, moved, cpu = now, time.monotonic(), {}
            elif time.monotonic() > moved + _QUIET:
                return moved, cpu, progress
            elif not cpu and time.monotonic() > moved + _SETTLED:
                meter.sample()
                cpu = meter.cpu_by_kind
        time.sleep(0.1)
    raise TimeoutError(f"the pipeline has not read all of its input after {PATIENCE:.0f} s")


def duckdb_seconds(queries: Sequence[Nexmark], given: Input) -> float:
    """Return the CPU seconds of DuckDB for one run of each query over the whole input in memory."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, one in given.streams.items():
            connection.register(name, one.table)
        began = time.process_time()
        for query in queries:
            connection.sql(query.oracle).to_arrow_table()
        return time.process_time() - began


# --- the benchmark -----------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--rate", type=float, default=1000.0, help="events a second")
    parser.add_argument("--tasks", type=int, default=2, help="Spark's")
    parser.add_argument("--runs", type=int, default=3, help="rounds")
    parser.add_argument("--variants", type=int, nargs="*", default=[10, 100], help="numbers of")
    parser.add_argument("--singles", choices=["joins", "all", "none"], default="joins")
    parser.add_argument("--queries", nargs="+", choices=[q.name for q in QUERIES], default=None)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all rounds; return the figures."""
    given = Input.of(options.events, options.batches, options.rate, home / "input")
    joins = [q for q in JOINS if options.queries is None or q.name in options.queries]
    chosen = {"joins": joins, "all": QUERIES, "none": ()}[options.singles]
    many = {count: variants(count) for count in options.variants}
    singles: dict[str, list[Cost]] = {query.name: [] for query in chosen}
    together: list[Cost] = []
    apart: list[float] = []
    several: dict[int, list[Cost]] = {count: [] for count in many}
    batch: list[float] = []
    for number in range(options.runs):

        def once(queries: Sequence[Nexmark], name: str, number: int = number) -> Cost:
            found = cost(queries, given, made(home / "run"), tasks=options.tasks)
            tell(f"round {number + 1}: {name}: {found.cpu_seconds:.1f} CPU s")
            return found

        for query in chosen:
            singles[query.name].append(once([query], query.name))
        together.append(once(joins, f"{len(joins)} at once"))
        apart.append(sum(singles[q.name][-1].cpu_seconds for q in joins if q.name in singles))
        for count, queries in many.items():
            several[count].append(once(queries, f"{count} variants"))
        batch.append(duckdb_seconds(joins, given))
    return {
        "input_tuples": sum(one.rows for one in given.recorded if one.name in STREAMS),
        "joins": [query.name for query in joins],
        "singles": {name: _figures(costs) for name, costs in singles.items()},
        "together": _figures(together),
        "sum_of_singles": spread(apart, 2),
        "times": spread((a / b.cpu_seconds for a, b in zip(apart, together, strict=True)), 2),
        "variants": {str(count): _figures(costs) for count, costs in several.items()},
        "duckdb_cpu_seconds": spread(batch, 2),
        "runs": {
            "together": [one.to_json() for one in together],
            **{name: [one.to_json() for one in costs] for name, costs in singles.items()},
        },
    }


def _figures(costs: Sequence[Cost]) -> dict[str, Any]:
    """Return medians and ranges of the cost of one pipeline, over the rounds."""
    return {
        "cpu_seconds": spread((one.cpu_seconds for one in costs), 2),
        "seconds": spread((one.seconds for one in costs), 2),
        "state_bytes": spread(one.state_bytes for one in costs),
        "batches": spread(one.batches for one in costs),
        "rows": sum(costs[-1].rows.values()),
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: of all pipelines, and single ones compared with the joint one."""
    lines = [(name, one) for name, one in entry["singles"].items()]
    lines.append((f"all {len(entry['joins'])} join queries at once", entry["together"]))
    lines += [(f"{count} variants at once", one) for count, one in entry["variants"].items()]
    rows = tuple(
        (
            name,
            shown(one["cpu_seconds"], 1),
            shown(one["seconds"], 1),
            shown(one["state_bytes"], 1, _MEBI),
            shown(one["batches"]),
            f"{one['rows']:,}",
        )
        for name, one in lines
    )
    head = ("pipeline", "CPU s", "seconds", "state MiB", "batches", "rows of answers")
    found = [Grid(f"Nexmark, {entry['settings']['events']:,} events", head, rows)]
    if entry["singles"]:
        ratio = (
            shown(entry["sum_of_singles"], 1),
            shown(entry["together"]["cpu_seconds"], 1),
            shown(entry["times"], 2),
            shown(entry["duckdb_cpu_seconds"], 1),
        )
        titles = ("a pipeline each, CPU s", "at once, CPU s", "ratio", "DuckDB once, CPU s")
        found.append(Grid("Nexmark's join queries, each alone and at once", titles, (ratio,)))
    return found


BENCHMARK = Benchmark(
    "together", "Nexmark's join queries at once against one by one", _options, measure, tables
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    return run_benchmark("nexmark", BENCHMARK, arguments, lambda _: None)


if __name__ == "__main__":
    sys.exit(main())

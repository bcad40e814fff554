"""CPU time of detection rules over one stream of events, by number of rules: in our system, in
Flink and in DuckDB.

The rules come from `benchmarks.queries.rules`: two or three steps for the same entity within a time
span, with few filters in common. *anabranch* and *Flink* are measured as
[above](#five-tpc-h-joins): CPU seconds from the second batch on, all rules at once. In Flink they
are interval joins of one statement set, over tables of the event's columns with filters.

*DuckDB* runs every rule again after every five minutes of event time, like a scheduled query, over
the events of these minutes and of the longest time span before them; a result counts if its last
event is in these minutes. Its CPU time is that of all such runs, without the time of our first
batch.

The results of all systems are compared with DuckDB's over the whole input; if they differ, there
are no figures. Every round runs all systems in turn.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.rest.types import spark_type
from anabranch_contract.rest.streams import StreamOptions
from benchmarks.command import Benchmark, made, run_benchmark, spread
from benchmarks.oracle import Oracle
from benchmarks.queries.rules import STREAM, events, rules
from benchmarks.queries.workload import Query
from benchmarks.report.charts import Line, lines
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.rivals.environment import Spent
from benchmarks.rivals.flink.engine import ENVIRONMENT as FLINK
from benchmarks.rivals.flink.engine import PARTS, Inputs, Job, Jvm, Mode, changes, parts
from benchmarks.rivals.flink.statements import event_table
from benchmarks.rivals.ours import Cost, later_batches
from benchmarks.session import WrongResultError, session

#: Minutes of event time between DuckDB's runs; rules have no longer time spans.
MINUTES = 5
_MICROS = 60_000_000
_BEGIN = 1_700_000_000_000_000
_SET = "rules"
_STEP = re.compile(r"\be(\d)\.(\w+)")


@dataclass(frozen=True, slots=True)
class Input:
    """Generated events in equal batches.

    Attributes:
        stream: the events as a recorded stream.
        table: rows of the stream ordered by time, which has whole milliseconds.
    """

    stream: RecordedStream
    table: pa.Table

    @classmethod
    def of(cls, count: int, minutes: int, batches: int, folder: Path) -> Input:
        """Generate ``count`` events (rounded up to equal batches) over ``minutes`` minutes."""
        length, span = -(-count // batches), minutes * _MICROS // batches
        drawn = np.random.default_rng(0)
        each = (events(length, _BEGIN + n * span, span, drawn) for n in range(batches))
        rows = pa.Table.from_batches(each)
        micros = rows["ts"].cast(pa.int64()).to_numpy() // 1000 * 1000
        moments = pa.array(micros).cast(rows.schema.field("ts").type)
        table = rows.set_column(rows.schema.get_field_index("ts"), "ts", moments)
        path = folder / f"{STREAM}.parquet"
        pq.write_table(table, path)
        columns = tuple((field.name, str(spark_type(field.type))) for field in table.schema)
        options = StreamOptions(event_time="ts", lateness="1 second")
        return cls(RecordedStream(STREAM, path, length, len(table), columns, options), table)


def plain(rule: Query) -> str:
    """Return DuckDB's SQL for the rule.

    >>> next(iter(rules(1))).sql.count(" JOIN "), plain(next(iter(rules(1)))).count("INTERVAL")
    (1, 1)
    """
    return f"{rule.sql} AND e{_last(rule)}.ts - e0.ts <= INTERVAL '{rule.window}'"


def flink(rule: Query) -> str:
    """Return Flink's SQL for the rule, in which the bound of each step makes an interval join."""
    number, unit = rule.window.split()
    span = f"INTERVAL '{number}' {unit.rstrip('s').upper()}"

    def bounds(found: re.Match[str]) -> str:
        step = int(found[1])
        within = f"AND e{step}.ts BETWEEN e0.ts AND e0.ts + {span}"
        if step == 1:
            return within
        # Flink would not use an interval join if a second time attribute were in the condition.
        kind = "TIMESTAMP(3)"
        return f"{within} AND CAST(e{step}.ts AS {kind}) >= CAST(e{step - 1}.ts AS {kind})"

    joined = re.sub(r"AND e(\d)\.ts >= e\d\.ts", bounds, rule.sql)
    return _STEP.sub(r"e\1.`\2`", joined)


def _last(rule: Query) -> int:
    return max(int(step) for step, _ in _STEP.findall(rule.sql))


def _compare(oracle: Oracle, rule: Query, found: str | None) -> None:
    """Compare a rule's results.

    Args:
        found: DuckDB's SQL for its rows; None: it has no result files.

    Raises:
        WrongResultError: they differ from DuckDB's.
    """
    if found is not None:
        oracle.compare(rule.name, plain(rule), found)
    elif missing := oracle.count(plain(rule)):
        raise WrongResultError(f"{rule.name}: {missing} rows missing")


def ours(given: Input, chosen: Sequence[Query], home: Path, options: argparse.Namespace) -> Cost:
    """Run all rules on our whole system; return the cost.

    Raises:
        WrongResultError: the results of a rule differ from DuckDB's.
        ClientError: a process failed.
    """
    try:
        with session(
            home, [given.stream], [], master=f"local[{options.tasks}]", epoch_batches=4
        ) as system:
            for rule in chosen:
                system.client.create_query(rule.sql, name=rule.name, window=rule.window)
            cost = later_batches(system, options.batches)
            system.wait(lambda progress: progress.input.exhausted)
            system.pipeline.finish_runtime()
            oracle = Oracle({STREAM: given.table})
            for rule in chosen:
                folder = system.pipeline.spec.results / rule.name
                files = f"read_parquet('{folder}/*.parquet', union_by_name = true)"
                written = any(folder.glob("*.parquet"))
                _compare(oracle, rule, f"SELECT * FROM {files}" if written else None)
            oracle.close()
            return cost
    finally:
        shutil.rmtree(home, ignore_errors=True)


class Flink:
    """Flink jobs of rules over given events.

    Args:
        given: the input events.
        batches: number of our batches; Flink's first input is as large as our first batch.
        jvm: options of the JVM.
        home: folder of all files.
    """

    def __init__(self, given: Input, batches: int, jvm: Jvm, home: Path) -> None:
        self._given, self._jvm, self._home = given, jvm, home
        streams = {STREAM: given.table}
        self._inputs = Inputs(streams, home, files=jvm.parallelism, first=1 / batches)

    def cost(self, chosen: Sequence[Query]) -> dict[str, Spent]:
        """Run one statement set; return its resource usage by part.

        Raises:
            RivalError: a job failed.
        """
        return parts(*self._inputs.marks(self._jvm, lambda folder: self._job(chosen, folder)))

    def check(self, chosen: Sequence[Query]) -> None:
        """Compare Flink's results over all input with DuckDB's.

        Raises:
            RivalError: a job failed.
            WrongResultError: the results of a rule differ from DuckDB's.
        """
        job = self._job(chosen, self._inputs.every)
        job.run(self._jvm, checked=True)
        oracle = Oracle({STREAM: self._given.table})
        for rule in chosen:
            folder = job.answer(_SET, rule.name)
            found = changes(oracle.columns(plain(rule)), folder)
            _compare(oracle, rule, found if any(folder.glob("*/part-*")) else None)
        oracle.close()
        shutil.rmtree(job.home)

    def _job(self, chosen: Sequence[Query], inputs: Path) -> Job:
        job = Job(made(self._home / "job"), Mode.ROWS, {_SET: {r.name: flink(r) for r in chosen}})
        table = event_table(STREAM, self._given.table.schema, inputs / STREAM, "ts")
        job.write({STREAM: table}, self._jvm)
        return job


def rerun(given: Input, chosen: Sequence[Query], batches: int, threads: int) -> float:
    """Run the rules in DuckDB again and again; return the CPU seconds after the first batch.

    Raises:
        WrongResultError: the runs have not found all results.
    """
    moments = given.table["ts"].cast(pa.int64()).to_numpy()
    begun, width = int(moments[len(moments) // batches]), MINUTES * _MICROS
    spent = 0.0
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("every", given.table)
        connection.execute("CREATE TABLE kept AS FROM every")
        counts = dict.fromkeys((rule.name for rule in chosen), 0)
        for start in range(_BEGIN, int(moments[-1]) + 1, width):
            began = time.process_time()
            since, end = start - width, start + width
            connection.execute(
                f"CREATE OR REPLACE VIEW {STREAM} AS FROM kept"
                f" WHERE epoch_us(ts) >= {since} AND epoch_us(ts) < {end}"
            )
            for rule in chosen:
                last = f"epoch_us(e{_last(rule)}.ts)"
                found = connection.sql(f"{plain(rule)} AND {last} >= {start}").to_arrow_table()
                counts[rule.name] += found.num_rows
            if end > begun:
                # Count only the share of the run after the end of our first batch.
                spent += (time.process_time() - began) * min(end - begun, width) / width
    oracle = Oracle({STREAM: given.table})
    for rule in chosen:
        if counts[rule.name] != (wanted := oracle.count(plain(rule))):
            raise WrongResultError(f"{rule.name}: {counts[rule.name]} rows, not {wanted}")
    oracle.close()
    return spent


# --- the benchmark -----------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rules", type=int, nargs="+", default=[5, 50, 200])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--minutes", type=int, default=30, help="of event time")
    parser.add_argument("--batches", type=int, default=10, help="ours")
    parser.add_argument("--tasks", type=int, default=2, help="Spark's, and threads of the others")
    parser.add_argument("--heap", default="6g", help="Flink's, as for java -Xmx")
    parser.add_argument("--runs", type=int, default=1, help="rounds")
    # With most other seeds, few of the first rules have results.
    parser.add_argument("--seed", type=int, default=5, help="of the rules")
    parser.add_argument("--checked", type=int, default=50, help="most rules compared in Flink")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Check Flink's results, then run all rounds; return the figures."""
    FLINK.require()
    given = Input.of(options.events, options.minutes, options.batches, made(home / "input"))
    engine = Flink(given, options.batches, Jvm(options.tasks, heap=options.heap), made(home / "f"))
    every = list(rules(max(options.rules), options.seed))
    oracle = Oracle({STREAM: given.table})
    results = {n: sum(oracle.count(plain(r)) for r in every[:n]) for n in options.rules}
    oracle.close()
    engine.check(every[: options.checked])
    tell("Flink: answers equal DuckDB's")
    found: dict[int, dict[str, list[float]]] = {n: {} for n in options.rules}
    for _ in range(options.runs):
        for number, costs in found.items():
            chosen = every[:number]
            cost = ours(given, chosen, home / "run", options)
            costs.setdefault("anabranch", []).append(cost.spent.cpu)
            for part, spent in engine.cost(chosen).items():
                costs.setdefault(f"Flink, {PARTS[part]}", []).append(spent.cpu)
            again = rerun(given, chosen, options.batches, options.tasks)
            costs.setdefault(f"DuckDB, every {MINUTES} minutes", []).append(again)
            tell(f"{number} rules: { ({name: round(cpu[-1], 1) for name, cpu in costs.items()}) }")
    return {
        "rivals": {"flink": FLINK.version},
        "results": {str(number): count for number, count in results.items()},
        "cpu": {
            str(number): {name: spread(cpu, 2) for name, cpu in costs.items()}
            for number, costs in found.items()
        },
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: CPU seconds by number of rules, and other engines' as multiples of ours."""
    ours, *others = names = list(next(iter(entry["cpu"].values())))
    rows = tuple(
        (
            f"{int(number):,}",
            f"{entry['results'][number]:,}",
            *(shown(costs[name], 1) for name in names),
        )
        for number, costs in entry["cpu"].items()
    )
    title = f"CPU seconds of {entry['settings']['events']:,} events, by the number of rules"
    ratios = tuple(
        (
            f"{int(number):,}",
            *(f"{costs[name]['median'] / costs[ours]['median']:.1f}" for name in others),
        )
        for number, costs in entry["cpu"].items()
    )
    return [
        Grid(title, ("rules", "results", *names), rows),
        Grid("CPU of others, of ours", ("rules", *others), ratios),
    ]


def chart(entry: dict[str, Any]) -> str:
    """Return the table as a chart."""
    names = list(next(iter(entry["cpu"].values())))
    series = [
        Line(name, tuple((int(n), costs[name]["median"]) for n, costs in entry["cpu"].items()))
        for name in names
    ]
    return lines("CPU by the number of rules", "rules", "CPU seconds", series, logarithmic=True)


BENCHMARK = Benchmark(
    "rules",
    "detection rules over one stream, here, in Flink and in DuckDB",
    _options,
    measure,
    tables,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    return run_benchmark("rivals", BENCHMARK, arguments, lambda _: None)


if __name__ == "__main__":
    sys.exit(main())

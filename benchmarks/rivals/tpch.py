"""Throughput and CPU time of five TPC-H joins over seven shared streams: in our system, Flink,
Pathway, Spark and DuckDB.

*anabranch* is the whole system as users run it (Redis, service, runtime as processes), live; it
writes results as Parquet files, and its state with every batch. Its time is measured from the
moment when the second batch may start to the last commit, its CPU time is that of all processes
meanwhile; the first batch starts Spark's workers and warms up.

*Flink* runs the queries as one statement set over Parquet files, with settings that favour it: one
JVM without network or service is the whole cluster, state is on the heap, objects are reused, there
are no checkpoints, and results are dropped (``blackhole``). Of runs row by row and with
mini-batches, the faster one counts. *Durable* is a job that writes results to Parquet files and has
a checkpoint every 2 s. *From the second batch* is the usage of a process with all of the input,
minus that of a process with the first batch only; *warm* is the same difference for second runs in
the same processes; *whole process* includes everything.

*Pathway* reads CSV files, one per batch of ours, with one tree of joins per query, in the order of
its statement; queries with the same first joins share them. It commits every 10 ms, keeps no state
on disk, counts its results and drops them.

*Spark* runs its own stream-stream joins as five streaming queries of one session, each with
micro-batches of ours (one Parquet file of each stream), as fast as it can (``availableNow``), with
checkpoints on disk; results are dropped (``noop``). Of its two state stores, the one is used that
was faster when results were compared. Its figures are the usage of a process with all of the input,
minus that of a process with the first batch only.

*DuckDB* answers the five queries over all of the input as one batch: a lower bound.

The input is the demo's, in shuffled order, without windows; in the other streaming engines amounts
are doubles. The results of all systems are compared row by row with DuckDB's, for other engines in
separate runs; if they differ, there are no figures. Every round runs all systems in turn.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_client.replay import tpch
from anabranch_client.replay.scenario import RecordedStream
from benchmarks import duckdb_batch
from benchmarks.command import Benchmark, made, run_benchmark, spread
from benchmarks.oracle import Oracle
from benchmarks.report.charts import Row, stacked
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.report.targets import SIZES, Figure, Target
from benchmarks.rivals.environment import Spent
from benchmarks.rivals.flink.engine import ENVIRONMENT as FLINK
from benchmarks.rivals.flink.engine import PARTS, Inputs, Job, Jvm, Mode, changes, parts
from benchmarks.rivals.flink.statements import plain_table
from benchmarks.rivals.ours import Cost, later_batches
from benchmarks.rivals.pathway import engine as pathway
from benchmarks.rivals.pathway.engine import ENVIRONMENT as PATHWAY
from benchmarks.rivals.pathway.engine import Tree
from benchmarks.rivals.spark import engine as spark
from benchmarks.rivals.spark.engine import StateStore
from benchmarks.session import session

_SYSTEMS = ("flink", "pathway", "spark")
_SET = "together"
#: Names of the systems in tables.
_OURS, _PATHWAY, _SPARK, _BATCH = "anabranch", "Pathway", "Spark", "DuckDB"
_MODES = {
    "Flink": (Mode.ROWS, Mode.MINI_BATCH),
    "Flink, durable": (Mode.DURABLE,),
}
_GIB = 2**30

#: Query -> its joins, in the order of its statement.
_PARTSUPP = ("partsupp", (("s_suppkey", "ps_suppkey"),))
_LINES = ("lineitem", (("ps_partkey", "l_partkey"), ("ps_suppkey", "l_suppkey")))
_PART = ("part", (("ps_partkey", "p_partkey"),))
_ORDERS = ("orders", (("l_orderkey", "o_orderkey"),))
_SUPPLIER = ("supplier", (("n_nationkey", "s_nationkey"),))
STEPS: Mapping[str, tuple[pathway.Step, ...]] = {
    "q1": (("region", ()), ("nation", (("r_regionkey", "n_regionkey"),)), _SUPPLIER, _PARTSUPP),
    "q2": (("nation", ()), _SUPPLIER, _PARTSUPP, _PART),
    "q3": (("supplier", ()), _PARTSUPP, _PART, _LINES),
    "q4": (("supplier", ()), _PARTSUPP, _LINES, _ORDERS),
    "q5": (("part", ()), ("partsupp", (("p_partkey", "ps_partkey"),)), _LINES, _ORDERS),
}


@dataclass(frozen=True, slots=True)
class Input:
    """The input streams in all forms that the systems read.

    Attributes:
        streams: the streams as recordings, in batches.
        tables: stream -> its rows, with amounts as doubles.
        rows: query -> expected number of results.
        batches: number of batches.
    """

    streams: tuple[RecordedStream, ...]
    tables: dict[str, pa.Table]
    rows: dict[str, int]
    batches: int

    @classmethod
    def of(cls, scale: float, batches: int, folder: Path) -> Input:
        """Generate the streams in ``folder``."""
        streams = tpch.generate(folder, scale, batches)
        tables = {one.name: _doubles(pq.read_table(one.path)) for one in streams}
        oracle = Oracle(tables)
        rows = {query.name: oracle.count(query.sql) for query in tpch.QUERIES}
        oracle.close()
        return cls(streams, tables, rows, batches)

    @property
    def tuples(self) -> int:
        """Number of tuples of all streams."""
        return sum(one.rows for one in self.streams)

    @property
    def first(self) -> int:
        """Number of tuples in the first batch."""
        return sum(min(one.rows, one.rows_per_batch) for one in self.streams)


def _doubles(table: pa.Table) -> pa.Table:
    kinds = [pa.float64() if pa.types.is_decimal(f.type) else f.type for f in table.schema]
    return table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))


def ours(given: Input, home: Path, tasks: int) -> Cost:
    """Run our whole system below the folder ``home``; return the cost.

    Raises:
        WrongResultError: the results differ from the oracle's.
        ClientError: a process failed.
    """
    try:
        with session(
            *(home, given.streams, tpch.QUERIES),
            master=f"local[{tasks}]",
            parallelism=1,
            epoch_batches=max(given.batches // 4, 1),
        ) as system:
            cost = later_batches(system, given.batches)
            system.finish(tpch.QUERIES)
        return cost
    finally:
        shutil.rmtree(home, ignore_errors=True)


class Flink:
    """Flink jobs of the five joins over given streams.

    Args:
        given: the streams.
        jvm: options of the JVM.
        home: folder of all files.
    """

    def __init__(self, given: Input, jvm: Jvm, home: Path) -> None:
        self._given, self._jvm, self._home = given, jvm, home
        first = given.first / given.tuples
        self._inputs = Inputs(given.tables, home, files=jvm.parallelism, first=first)

    def costs(self, mode: Mode) -> dict[str, Cost]:
        """Return the costs of one statement set, whose results are dropped.

        Raises:
            RivalError: a job failed.
        """
        later = self._given.tuples - self._given.first
        tuples = {"live": later, "warm": later, "whole": self._given.tuples}
        found = parts(*self._inputs.marks(self._jvm, lambda folder: self._job(mode, folder)))
        return {part: Cost(tuples[part], spent) for part, spent in found.items()}

    def check(self, mode: Mode) -> None:
        """Compare Flink's results over all input with DuckDB's.

        Raises:
            RivalError: a job failed.
            WrongResultError: a result differs from DuckDB's.
        """
        job = self._job(mode, self._inputs.every)
        job.run(self._jvm, checked=True)
        oracle = Oracle(self._given.tables)
        for query in tpch.QUERIES:
            found = changes(oracle.columns(query.sql), job.answer(_SET, query.name))
            oracle.compare(query.name, query.sql, found)
        oracle.close()
        shutil.rmtree(job.home)

    def _job(self, mode: Mode, inputs: Path) -> Job:
        queries = {query.name: query.sql for query in tpch.QUERIES}
        job = Job(made(self._home / "job"), mode, {_SET: queries})
        tables = {n: plain_table(n, t.schema, inputs / n) for n, t in self._given.tables.items()}
        job.write(tables, self._jvm)
        return job


class Pathway:
    """Pathway jobs of the five joins over given streams.

    Args:
        given: the streams.
        home: folder of all files.
    """

    def __init__(self, given: Input, home: Path) -> None:
        self._given, self._home = given, home
        for name, used in (("every", given.batches), ("first", 1)):
            pathway.write_input(given.tables, home / name, files=given.batches, used=used)
        self._trees = {
            query.name: Tree(tuple(query.select.split(", ")), STEPS[query.name])
            for query in tpch.QUERIES
        }

    def cost(self) -> Cost:
        """Return the cost from the second batch on.

        Raises:
            RivalError: the process failed.
        """
        oracle = Oracle(
            {
                one.name: self._given.tables[one.name].slice(0, one.rows_per_batch)
                for one in self._given.streams
            }
        )
        begun = {query.name: oracle.count(query.sql) for query in tpch.QUERIES}
        oracle.close()
        every = self._run("every", self._given.rows)
        first = self._run("first", begun)
        return Cost(self._given.tuples - self._given.first, every.since(first))

    def check(self) -> None:
        """Compare Pathway's results over all input with DuckDB's.

        Raises:
            RivalError: the process failed.
            WrongResultError: a result differs from DuckDB's.
        """
        answers = made(self._home / "answers")
        self._run("every", self._given.rows, answers)
        oracle = Oracle(self._given.tables)
        for query in tpch.QUERIES:
            wanted = oracle.columns(query.sql)
            columns = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in wanted)
            file = answers / f"{query.name}.csv"
            found = f"SELECT {columns} FROM read_csv('{file}', header = true) WHERE diff = 1"
            oracle.compare(query.name, query.sql, found)
        oracle.close()
        shutil.rmtree(answers)

    def _run(self, inputs: str, rows: Mapping[str, int], answers: Path | None = None) -> Spent:
        return pathway.run(self._given.tables, self._trees, rows, self._home / inputs, answers)


class Spark:
    """Spark's stream-stream joins of the five queries over given streams.

    Args:
        given: the streams.
        home: folder of all files.
        tasks: number of Spark's tasks.
        heap: size of the JVM's heap, as for ``java -Xmx``.
    """

    def __init__(self, given: Input, home: Path, tasks: int, heap: str) -> None:
        self._given, self._home, self._tasks, self._heap = given, home, tasks, heap
        for name, used in (("every", given.batches), ("first", 1)):
            spark.write_input(given.tables, home / name, files=given.batches, used=used)
        self._store = StateStore.MEMORY

    def cost(self) -> Cost:
        """Return the cost from the second batch on.

        Raises:
            RivalError: a process failed.
        """
        every, first = (self._run(inputs, self._store) for inputs in ("every", "first"))
        return Cost(self._given.tuples - self._given.first, every.since(first))

    def check(self) -> None:
        """Compare Spark's results over all input with DuckDB's, with each state store; :meth:`cost`
        then uses the faster store.

        Raises:
            RivalError: a process failed.
            WrongResultError: a result differs from DuckDB's.
        """
        oracle, seconds = Oracle(self._given.tables), dict[StateStore, float]()
        for store in StateStore:
            answers = made(self._home / "answers")
            seconds[store] = self._run("every", store, answers).seconds
            for query in tpch.QUERIES:
                names = ", ".join(f'"{name}"' for name, _ in oracle.columns(query.sql))
                found = f"SELECT {names} FROM '{answers / query.name}/*.parquet'"
                oracle.compare(query.name, query.sql, found)
            shutil.rmtree(answers)
        oracle.close()
        self._store = min(StateStore, key=lambda store: seconds[store])

    def _run(self, inputs: str, store: StateStore, answers: Path | None = None) -> Spent:
        queries = {query.name: query.sql for query in tpch.QUERIES}
        work = made(self._home / "work")
        try:
            return spark.run(
                *(queries, self._home / inputs, work),
                tasks=self._tasks,
                heap=self._heap,
                store=store,
                answers=answers,
            )
        finally:
            shutil.rmtree(work)


# --- the benchmark -----------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor")
    parser.add_argument("--batches", type=int, default=8, help="ours")
    parser.add_argument("--tasks", type=int, default=2, help="Spark's, and threads of the others")
    parser.add_argument("--heap", default="6g", help="Flink's and Spark's, as for java -Xmx")
    parser.add_argument("--runs", type=int, default=3, help="rounds")
    parser.add_argument("--systems", nargs="*", choices=_SYSTEMS, default=list(_SYSTEMS))


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Check all results, then run all rounds; return the figures."""
    given = Input.of(options.scale, options.batches, made(home / "input"))
    flink = beside = stock = None
    rivals: dict[str, str] = {}
    if "flink" in options.systems:
        FLINK.require()
        rivals["flink"] = FLINK.version
        flink = Flink(given, Jvm(options.tasks, heap=options.heap), made(home / "flink"))
        for mode in Mode:
            flink.check(mode)
            tell(f"Flink, {mode}: answers equal DuckDB's")
    if "pathway" in options.systems:
        PATHWAY.require()
        rivals["pathway"] = PATHWAY.version
        beside = Pathway(given, made(home / "pathway"))
        beside.check()
        tell("Pathway: answers equal DuckDB's")
    if "spark" in options.systems:
        rivals["spark"] = spark.VERSION
        stock = Spark(given, made(home / "spark"), options.tasks, options.heap)
        stock.check()
        tell("Spark: answers equal DuckDB's")
    found: dict[str, list[Cost]] = {}

    def add(name: str, cost: Cost) -> None:
        found.setdefault(name, []).append(cost)
        spent = cost.spent
        tell(f"{name}: {cost.rate:,.0f} tuples/s, {spent.cpu:.1f} CPU s of {spent.seconds:.1f} s")

    for _ in range(options.runs):
        batch = duckdb_batch.run(home / "input", home / "duckdb", options.tasks)
        shutil.rmtree(home / "duckdb")
        add(
            _BATCH,
            Cost(given.tuples, Spent(batch.cpu_seconds, batch.seconds, batch.peak_rss_bytes)),
        )
        add(_OURS, ours(given, home / "run", options.tasks))
        if beside is not None:
            add(_PATHWAY, beside.cost())
        if stock is not None:
            add(_SPARK, stock.cost())
        for name, modes in _MODES.items():
            costs = [flink.costs(mode) for mode in modes if flink is not None]
            for part, title in PARTS.items() if costs else ():
                add(f"{name}, {title}", min((c[part] for c in costs), key=_seconds))
    return {
        "input_tuples": given.tuples,
        "results": given.rows,
        "rivals": rivals,
        "systems": {name: summary(costs, found[_OURS]) for name, costs in found.items()},
        "rounds": {name: [cost.to_json() for cost in costs] for name, costs in found.items()},
    }


def _seconds(cost: Cost) -> float:
    return cost.spent.seconds


def summary(costs: Sequence[Cost], compared: Sequence[Cost]) -> dict[str, Any]:
    """Return spreads over all rounds, also of the ratios between our figures and a system's.

    CPU is compared per tuple.
    """
    pairs = list(zip(compared, costs, strict=True))
    return {
        "tuples": costs[0].tuples,
        "rate": spread((cost.rate for cost in costs), 0),
        "cpu": spread((cost.spent.cpu for cost in costs), 2),
        "bytes": spread((cost.spent.bytes for cost in costs), 0),
        "rate_times": spread((our.rate / other.rate for our, other in pairs), 2),
        "cpu_times": spread(
            (other.cpu / our.cpu for our, other in pairs),
            2,
        ),
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table of all systems."""
    settings = entry["settings"]
    rows = tuple(
        (
            name,
            shown(one["rate"]),
            shown(one["cpu"], 1),
            shown(one["bytes"], 2, _GIB),
            "" if name == _OURS else shown(one["rate_times"], 2),
            "" if name == _OURS else shown(one["cpu_times"], 2),
        )
        for name, one in entry["systems"].items()
    )
    head = ("system", "tuples/s", "CPU s", "peak GiB", "throughput: ours, times", "CPU, of ours")
    title = f"Five TPC-H joins, scale {settings['scale']:g}, {settings['batches']} batches"
    return [Grid(title, head, rows)]


def chart(entry: dict[str, Any]) -> str:
    """Return a chart of throughput, without DuckDB, which reads everything as one batch."""
    rates = {name: one["rate"]["median"] for name, one in entry["systems"].items()}
    rows = [
        Row(name, (rate / 1000,), f"{rate / 1000:,.0f}")
        for name, rate in rates.items()
        if name in (_OURS, _PATHWAY, _SPARK, "Flink, warm", "Flink, durable, warm")
    ]
    cpus, scale = entry["machine"]["cpus"], entry["settings"]["scale"]
    title = f"Five TPC-H joins at once, scale {scale:g}, {cpus} CPUs"
    return stacked(title, ["thousand tuples per second"], rows)


def targets(entry: dict[str, Any]) -> list[Target]:
    """Return the targets on throughput and CPU time, relative to the other engines."""
    runs, systems = entry["settings"]["runs"], entry["systems"]
    scale = entry["settings"]["scale"]
    wanted = [
        ("Flink, from the second batch", "rate_times", 8.0),
        ("Flink, warm", "rate_times", 8.0),
        ("Pathway", "rate_times", 5.0),
    ]
    found = [
        Target(
            f"scale {scale:g}: throughput, of {name}",
            Figure.of(systems[name][of], runs),
            *(limit, True, 2, " ×"),
        )
        for name, of, limit in wanted
        if name in systems
    ]
    our = systems[_OURS]
    if scale == 0.1:
        cpu = Figure.of(our["cpu"], runs)
        found.append(Target("scale 0.1: CPU", cpu, 5.0, False, 1, " s"))
        memory = Figure.of(our["bytes"], runs, _GIB, SIZES)
        found.append(Target("scale 0.1: peak memory", memory, 1.5, False, 2, " GiB"))
    if scale == 1:
        for of, title, limit in (("rate_times", "time", 2.5), ("cpu_times", "CPU", 2.2)):
            inverse = _inverse(systems[_BATCH][of])
            found.append(
                Target(
                    f"scale 1: {title}, of DuckDB's batch",
                    Figure.of(inverse, runs),
                    *(limit, False, 2, " ×"),
                )
            )
    return found


def _inverse(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spread of the inverse figures."""
    return {
        **saved,
        "median": 1 / saved["median"],
        "low": 1 / saved["high"],
        "high": 1 / saved["low"],
        "interval": [1 / end for end in reversed(saved["interval"])],
    }


BENCHMARK = Benchmark(
    "tpch",
    "five TPC-H joins over shared streams, here and in other engines",
    _options,
    measure,
    tables,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    return run_benchmark("rivals", BENCHMARK, arguments, lambda _: None)


if __name__ == "__main__":
    sys.exit(main())

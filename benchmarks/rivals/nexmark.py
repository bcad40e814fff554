"""CPU time of Nexmark's join queries, in our system and in Flink, over the same recorded events.

*Ours* is measured as above: CPU seconds of all processes from the second batch until every view
includes the last one. *Flink* runs the queries as one statement set, and each as a separate job, in
streaming mode over a finite set of Parquet files. One JVM is the whole cluster, without network,
REST server or service. The settings favour Flink: rows go to its ``blackhole`` sink, there are no
checkpoints, state is on the heap, objects are reused, each kind of event is a separate table, and
of runs with and without mini-batches the cheaper one counts. Our system writes Parquet files of
results, and its state with every batch; Flink does the same only in a *durable* job, which writes
the changes of all results to Parquet files and has a checkpoint every 2 s.

Columns of Flink: *from the second batch* is the CPU time of a process that runs all of the input,
minus that of a process that runs our first batch only. So starting, planning and warming up do not
count, as in ours. *Warm* is the same difference for second runs in the same two processes, when all
code has been compiled. *Whole process* includes everything.

The results of all queries, together and each alone, are compared with DuckDB's in separate runs,
which write files; if they differ, there are no figures.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark, made, run_benchmark, spread
from benchmarks.nexmark import together
from benchmarks.nexmark.statements import JOINS, Nexmark
from benchmarks.nexmark.together import Input
from benchmarks.oracle import Oracle
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid, middle
from benchmarks.report.grids import spread as shown
from benchmarks.report.targets import Figure, Target
from benchmarks.rivals.flink import statements
from benchmarks.rivals.flink.engine import ENVIRONMENT, Inputs, Job, Jvm, Mode, changes
from benchmarks.rivals.flink.statements import MOST_RATE

#: Target: minimum ratio of the CPU seconds of Flink's statement set to ours.
WANTED = 4.0
_TOGETHER = "together"
#: Bound of Flink's cost in tables -> its field of :class:`Cost`.
_BOUNDS = {"from the second batch": "live", "warm": "warm"}


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one statement set in Flink.

    Attributes:
        whole: CPU seconds of the process, from its start to the end of the first run.
        live: CPU seconds from our second batch on.
        warm: the same for the second run.
    """

    whole: float
    live: float
    warm: float

    @classmethod
    def of(cls, every: Sequence[float], first: Sequence[float]) -> Cost:
        """Return the cost from the CPU seconds after each run: over all input, and over the first
        batch.

        >>> Cost.of([1, 21, 36], [1, 14, 20])
        Cost(whole=21, live=7, warm=9)
        """
        return cls(every[1], every[1] - first[1], every[2] - every[1] - (first[2] - first[1]))

    @classmethod
    def least(cls, costs: Iterable[Cost]) -> Cost:
        """Return the least value of each field over ``costs``."""
        whole, live, warm = zip(*((c.whole, c.live, c.warm) for c in costs), strict=True)
        return cls(min(whole), min(live), min(warm))

    @classmethod
    def sum(cls, costs: Iterable[Cost]) -> Cost:
        """Return the sum of the costs of several jobs."""
        whole, live, warm = zip(*((c.whole, c.live, c.warm) for c in costs), strict=True)
        return cls(sum(whole), sum(live), sum(warm))

    def to_json(self) -> dict[str, float]:
        """The cost as part of the benchmark's line."""
        return {name: round(value, 2) for name, value in asdict(self).items()}


class Flink:
    """Flink jobs over given events.

    Args:
        given: the input events.
        batches: number of our batches; Flink's first input is as large as our first batch.
        jvm: options of the JVM.
        home: folder of all files.
    """

    def __init__(self, given: Input, batches: int, jvm: Jvm, home: Path) -> None:
        self._given, self._jvm, self._home = given, jvm, home
        streams = {name: given.streams[name].table for name in statements.STREAMS}
        self._inputs = Inputs(streams, home, files=jvm.parallelism, first=1 / batches)

    def cost(self, queries: Sequence[Nexmark], mode: Mode) -> Cost:
        """Return the cost of one statement set, whose results are dropped.

        Raises:
            RivalError: a job failed.
        """
        sets = {"queries": queries}
        marks = self._inputs.marks(self._jvm, lambda folder: self._job(sets, mode, folder))
        return Cost.of(*([one.cpu for one in side] for side in marks))

    def check(self, sets: Mapping[str, Sequence[Nexmark]], mode: Mode) -> dict[str, int]:
        """Run statement sets over all input and check their results; return the numbers of rows.

        Raises:
            RivalError: a job failed.
            WrongResultError: a result differs from DuckDB's.
        """
        job = self._job(sets, mode, self._inputs.every)
        job.run(self._jvm, checked=True)
        oracle = Oracle({name: one.table for name, one in self._given.streams.items()})
        rows = {
            query.name: oracle.compare(
                query.name, query.oracle, answer_of(oracle, query, job.answer(name, query.name))
            )
            for name, queries in sets.items()
            for query in queries
        }
        oracle.close()
        shutil.rmtree(job.home)
        return rows

    def _job(self, sets: Mapping[str, Sequence[Nexmark]], mode: Mode, inputs: Path) -> Job:
        texts = {
            name: {query.name: statements.QUERIES[query.name] for query in queries}
            for name, queries in sets.items()
        }
        job = Job(made(self._home / "job"), mode, texts)
        job.write(statements.tables({n: inputs / n for n in statements.STREAMS}), self._jvm)
        return job


def answer_of(oracle: Oracle, query: Nexmark, folder: Path) -> str:
    """Return DuckDB's SQL for the changes of Flink's result below ``folder``."""
    return changes(oracle.columns(query.oracle), folder, statements.UPSERTED.get(query.name))


# --- the benchmark -----------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=10, help="ours")
    parser.add_argument("--rate", type=float, default=MOST_RATE, help="events a second")
    parser.add_argument("--tasks", type=int, default=2, help="Spark's, and Flink's parallelism")
    parser.add_argument("--backend", choices=["hashmap", "rocksdb"], default="hashmap")
    parser.add_argument("--heap", default="6g", help="Flink's, as for java -Xmx")
    parser.add_argument("--runs", type=int, default=1, help="rounds")
    parser.add_argument("--singles", choices=["joins", "none"], default="joins")
    parser.add_argument("--queries", nargs="+", choices=[q.name for q in JOINS], default=None)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Check all results, then run all rounds; return the figures."""
    if options.rate > MOST_RATE:
        raise ValueError(
            f"--rate above {MOST_RATE:g} gives equal times, which Flink's orders leave"
        )
    ENVIRONMENT.require()
    given = Input.of(options.events, options.batches, options.rate, home / "input")
    jvm = Jvm(options.tasks, options.backend, options.heap)
    flink = Flink(given, options.batches, jvm, made(home / "flink"))
    joins = [q for q in JOINS if options.queries is None or q.name in options.queries]
    singles = joins if options.singles == "joins" else []
    sets: dict[str, Sequence[Nexmark]] = {q.name: [q] for q in singles}
    sets[_TOGETHER] = joins
    for mode in (Mode.ROWS, Mode.MINI_BATCH):
        rows = flink.check(sets, mode)
        tell(f"Flink, {mode}: {sum(rows.values()):,} rows equal DuckDB's")
    ours: dict[str, list[float]] = {name: [] for name in sets}
    theirs: dict[Mode, dict[str, list[Cost]]] = {
        Mode.ROWS: {name: [] for name in sets},
        Mode.MINI_BATCH: {name: [] for name in sets},
        Mode.DURABLE: {_TOGETHER: []},
    }
    for number in range(options.runs):
        for name, queries in sets.items():
            cost = together.cost(queries, given, made(home / "run"), tasks=options.tasks)
            ours[name].append(cost.cpu_seconds)
            tell(f"round {number + 1}: {name}: ours {cost.cpu_seconds:.1f} CPU s")
            for mode, costs in theirs.items():
                if name in costs:
                    costs[name].append(flink.cost(queries, mode))
                    tell(f"round {number + 1}: {name}: Flink, {mode}: {costs[name][-1].to_json()}")
    return {
        "input_tuples": sum(one.table.num_rows for one in given.streams.values()),
        "joins": [query.name for query in joins],
        "rivals": {"Flink": ENVIRONMENT.version},
        "rows": rows,
        **figures(ours, theirs),
        "runs": {
            "ours": {name: [round(one, 2) for one in found] for name, found in ours.items()},
            "flink": {
                str(mode): {name: [c.to_json() for c in costs] for name, costs in by_set.items()}
                for mode, by_set in theirs.items()
            },
        },
    }


def figures(
    ours: Mapping[str, Sequence[float]], theirs: Mapping[Mode, Mapping[str, Sequence[Cost]]]
) -> dict[str, Any]:
    """Return the spreads over all rounds; of Flink's two settings without durability, the better
    one of each round.

    Args:
        ours: set -> CPU seconds of each round; the sets are the single queries and all at once.
        theirs: mode of Flink -> set -> its cost in each round.
    """
    singles = [name for name in ours if name != _TOGETHER]
    best = {
        name: [
            Cost.least(pair)
            for pair in zip(theirs[Mode.ROWS][name], theirs[Mode.MINI_BATCH][name], strict=True)
        ]
        for name in ours
    }
    rounds = range(len(ours[_TOGETHER]))
    durable = theirs[Mode.DURABLE][_TOGETHER]
    found: dict[str, dict[str, Any]] = {
        "ours": {"together": spread(ours[_TOGETHER], 2)},
        "flink": {"together": _spreads(best[_TOGETHER]), "durable": _spreads(durable)},
        "times": {
            "together": _times(best[_TOGETHER], ours[_TOGETHER]),
            "durable": _times(durable, ours[_TOGETHER]),
        },
    }
    if singles:
        our_sums = [sum(ours[name][number] for name in singles) for number in rounds]
        their_sums = [Cost.sum(best[name][number] for name in singles) for number in rounds]
        found["ours"]["apart"] = spread(our_sums, 2)
        found["flink"]["apart"] = _spreads(their_sums)
        found["times"]["apart"] = _times(their_sums, our_sums)
        found["ours"]["each"] = {name: spread(ours[name], 2) for name in singles}
        found["flink"]["each"] = {name: _spreads(best[name]) for name in singles}
        found["times"]["each"] = {name: _times(best[name], ours[name]) for name in singles}
    return found


def _spreads(costs: Sequence[Cost]) -> dict[str, Any]:
    return {
        name: spread((getattr(one, name) for one in costs), 2)
        for name in ("whole", *_BOUNDS.values())
    }


def _times(theirs: Sequence[Cost], ours: Sequence[float]) -> dict[str, Any]:
    """Return the ratios of Flink's CPU seconds to ours."""
    return {
        name: spread(
            (getattr(one, name) / other for one, other in zip(theirs, ours, strict=True)), 2
        )
        for name in _BOUNDS.values()
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: both engines with all queries together and alone, then every query."""
    ours, flink, times = entry["ours"], entry["flink"], entry["times"]
    title = f"{entry['settings']['events']:,} events, CPU seconds"
    rows = [_row("anabranch, from the second batch", ours["together"], ours.get("apart"))]
    for label, of in (*_BOUNDS.items(), ("whole process", "whole")):
        apart = flink["apart"][of] if "apart" in flink else None
        ratios = [times[side][of] for side in ("together", "apart") if of in times.get(side, {})]
        rows.append(_row(f"Flink, {label}", flink["together"][of], apart, ratios))
    for label, of in _BOUNDS.items():
        ratios = [times["durable"][of]]
        rows.append(_row(f"Flink, durable, {label}", flink["durable"][of], None, ratios))
    head = ("system", "at once", "each", "each / at once", "× ours, at once", "× ours, each")
    found = [Grid(f"At once and each, {title}", head, tuple(rows))]
    if "each" in ours:
        queries = tuple(
            (
                name,
                f"{entry['rows'][name]:,}",
                middle(ours["each"][name], 1),
                *(middle(flink["each"][name][of], 1) for of in _BOUNDS.values()),
                *(middle(times["each"][name][of], 1) for of in _BOUNDS.values()),
            )
            for name in entry["joins"]
        )
        titles = ("query", "rows", "anabranch", "Flink", "Flink, warm", "× ours", "× ours, warm")
        found.append(Grid(f"Each query alone, {title}, medians", titles, queries))
    return found


def _row(
    name: str,
    joint: dict[str, float],
    apart: dict[str, float] | None,
    ratios: Sequence[dict[str, float]] = (),
) -> tuple[str, ...]:
    """Return an engine's row: all queries together, each alone, and ratios between them and to
    ours.
    """
    quotient = f"{apart['median'] / joint['median']:.2f}" if apart and joint["median"] > 0 else ""
    both = [shown(one, 2) for one in ratios]
    return (
        *(name, shown(joint, 1), shown(apart, 1) if apart else "", quotient),
        *(both + [""] * (2 - len(both))),
    )


def finding(entry: dict[str, Any]) -> str:
    """Return the result in words."""
    times, flink = entry["times"], entry["flink"]
    events, count = entry["settings"]["events"], len(entry["joins"])
    ours = entry["ours"]["together"]["median"]
    versions = ", ".join(f"{name} {version}" for name, version in entry["rivals"].items())
    each = (
        f" Each by itself they took {times['apart']['live']['median']:.1f}"
        f" ({times['apart']['warm']['median']:.1f}) times ours."
        if "apart" in times
        else ""
    )
    return (
        f"*{events:,} events, {versions}.* {count} join queries at once took {ours:.1f} s of CPU"
        f" here. Flink's statement set took {flink['together']['live']['median']:.1f} s from the"
        f" second batch, {times['together']['live']['median']:.1f} times as much, and warm"
        f" {flink['together']['warm']['median']:.1f} s, {times['together']['warm']['median']:.1f}"
        f" times as much; durable, {times['durable']['live']['median']:.1f} and"
        f" {times['durable']['warm']['median']:.1f} times as much.{each}"
    )


def targets(entry: dict[str, Any]) -> list[Target]:
    """Return the target on the ratio, for both bounds of Flink's cost."""
    runs, events = entry["settings"]["runs"], f"{entry['settings']['events']:,} events"
    return [
        Target(
            f"{events}: CPU of Flink's statement set, {name}, to ours at once",
            Figure.of(entry["times"]["together"][of], runs),
            *(WANTED, True, 2, " ×"),
        )
        for name, of in _BOUNDS.items()
    ]


BENCHMARK = Benchmark(
    "rivals",
    "Nexmark's join queries at once and each, here and in Flink",
    _options,
    measure,
    tables,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    return run_benchmark("nexmark", BENCHMARK, arguments, lambda _: None)


if __name__ == "__main__":
    sys.exit(main())

"""Hot keys on three simulated hosts, with and without spreading; real planner, driver and workers.

`python -m benchmarks.pmjoin.hot_keys [--json] [--rows 2000] [--exponents 0 0.6 0.9 1.2]`

Three hosts of two tasks each are simulated by threads that see only their own partitions and send
each other copies of Arrow batches. R and S are joined within the time of two batches, by a key that
follows a Zipf distribution over 20,000 values; the same values are frequent in both (*pair*). T is
joined with the result, by the same key (*one key*) or by another key of S (*chain*) whose values
are equally frequent. Every epoch of two batches is planned with the statistics of the previous
epoch, with `hot_keys` on and off, over the same rows; DuckDB counts the expected results.

A host's *load* is the number of rows that it writes, plus tuples that probe there, plus their
matches. *Busiest* is the greatest load of a host over the mean of the hosts, in the second half of
the batches, when the rows that were stored before hot values were spread have expired; *rows* and
*matches* are the same ratio for rows and for matches alone. *Load* is the load of all hosts
together, and *bytes* the bytes between hosts, both with spreading relative to without. *Predicted*
is the planner's estimate for the busiest host.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_client.replay.tpch import DemoQuery
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.placement import Placement
from benchmarks.command import Benchmark, run_benchmark
from benchmarks.engine import Engine
from benchmarks.pmjoin.turns import pipeline, played
from benchmarks.pmjoin.workloads import Workload, counted, cut
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]


#: Batches per epoch; and number of batches with whose rows a row is joined.
EVERY, KEPT = 2, 2
#: Seconds of event time per batch.
SPAN = 60
HOSTS, TASKS, PARTITIONS = 3, 2, 16
#: Number of values of a key.
VALUES = 20_000


def _near(one: str, other: str) -> str:
    """Return SQL for the condition that two rows are at most about two batches apart."""
    span = f"INTERVAL '{KEPT * SPAN}' SECOND"
    return f"{one}.at BETWEEN {other}.at - {span} AND {other}.at + {span}"


SHAPES = {
    "pair": DemoQuery(
        "pair", "r.n, s.n AS m", f"r JOIN s ON r.a = s.a AND {_near('r', 's')}", ("r", "s")
    ),
    "one key": DemoQuery(
        "one key",
        "r.n, s.n AS m, t.n AS o",
        f"r JOIN s ON r.a = s.a AND {_near('r', 's')} JOIN t ON s.a = t.a AND {_near('s', 't')}",
        ("r", "s", "t"),
    ),
    "chain": DemoQuery(
        "chain",
        "r.n, s.n AS m, t.n AS o",
        f"r JOIN s ON r.a = s.a AND {_near('r', 's')} JOIN t ON s.b = t.b AND {_near('s', 't')}",
        ("r", "s", "t"),
    ),
}


def workload(
    shape: str, exponent: float, rows: int, batches: int, seed: int, *, equal: bool | None = None
) -> Workload:
    """Generate a workload with ``rows`` rows per stream and batch.

    Args:
        equal: whether all keys of all streams follow the distribution, with the same frequent
            values or each its own; None: only the join keys of R and S, with the same frequent
            values.
    """
    random, count, query = np.random.default_rng(seed), rows * batches, SHAPES[shape]
    weights = np.arange(1, VALUES + 1) ** -exponent
    names = random.permutation(VALUES)
    at = (np.arange(count) * (SPAN * 1_000_000) // rows).astype("datetime64[us]")
    tables = {}
    for name in query.tables:
        drawn = _drawn(random, names, weights, count)
        if equal is None:
            evenly = random.integers(0, VALUES, count)
            keys = {"a": evenly if name == "t" else drawn, "b": random.integers(0, VALUES, count)}
        else:
            keys = {"a": drawn, "b": _drawn(random, names, weights, count)}
            names = names if equal else random.permutation(VALUES)
        times = pa.array(at).cast(pa.timestamp("us", "UTC"))
        tables[name] = pa.table({"n": np.arange(count), **keys, "at": times})
    return counted(shape, cut(tables, batches), (query,))


def _drawn(random: np.random.Generator, names: Ints, weights: Floats, count: int) -> Ints:
    return names[random.choice(VALUES, count, p=weights / weights.sum())]


class Hosts(NamedTuple):
    """Loads of the hosts in the second half of the batches.

    Attributes:
        loads: kind of work -> load of each host. ``sent``: bytes between hosts.
        moved: number of partitions that changed hosts, for every batch of the run.
    """

    loads: dict[str, list[int]]
    sent: int
    moved: list[int]

    @property
    def totals(self) -> list[int]:
        """Return the load of each host, over all kinds of work."""
        return [sum(kinds) for kinds in zip(*self.loads.values(), strict=True)]


def on_hosts(
    made: Workload, home: Path, partitions: int, **settings: Any
) -> AbstractContextManager[Engine]:
    """Return an engine with three hosts, and further ``settings`` of :class:`Engine`."""
    sizes = {"tasks": HOSTS * TASKS, "parallelism": partitions, "every": EVERY, "hosts": HOSTS}
    return pipeline(made, home, **sizes, **settings)


def watched(engine: Engine, made: Workload) -> Hosts:
    """Run all batches of a workload; return the loads of the hosts.

    Raises:
        WrongResultError: DuckDB counts other results.
    """
    hosts: dict[str, Counter[str]] = defaultdict(Counter)
    sent, before, changed = 0, engine.driver.state.hosts.placement, []
    for batch in played(engine, made):
        now = engine.driver.state.hosts.placement
        changed.append(moved(before, now))
        before = now
        if 2 * batch.number < len(made.batches):
            continue
        for report in engine.reports:
            hosts[report.host.name].update(load_of(report))
            sent += report.measured.sent_bytes
    kinds = ("rows", "probes", "matches")
    return Hosts({k: [one[k] for one in hosts.values()] for k in kinds}, sent, changed)


def run(made: Workload, home: Path, *, hot: bool) -> dict[str, Any]:
    """Return hosts' loads in the second half of the batches, and the hot values that
    were spread.
    """
    with on_hosts(made, home, PARTITIONS, hot_keys=hot) as engine:
        seen = watched(engine, made)
        found, stores = engine.hot, engine.driver.state.stores
    return {
        "busiest": over_mean(seen.totals),
        **{kind: over_mean(some) for kind, some in seen.loads.items()},
        "load": sum(seen.totals),
        "bytes": seen.sent,
        "moved": sum(seen.moved[len(seen.moved) // 2 :]),
        "hot": sum(1 for store in stores.values() for one in store.dealt if one.now),
        "before": 1.0 if found is None else found.before,
        "after": 1.0 if found is None else found.after,
    }


def load_of(report: TaskReport) -> dict[str, int]:
    """Return the rows, probes and matches of a task."""
    reads = [counts for by_index in report.measured.reads.values() for counts in by_index.values()]
    return {
        "rows": report.measured.inserts.rows,
        "probes": sum(counts.probes for counts in reads),
        "matches": sum(counts.matches for counts in reads),
    }


def moved(before: Placement | None, after: Placement | None) -> int:
    """Return the number of partitions whose host has changed."""
    if before is None or after is None:
        return 0
    pairs = zip(before.owners, after.owners, strict=True)
    return sum(a != b for (_, one), (_, other) in pairs for a, b in zip(one, other, strict=True))


def over_mean(loads: Sequence[int]) -> float:
    """Return the greatest load of a host, divided by the mean."""
    return max(loads) * HOSTS / max(sum(loads), 1)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--exponents", type=float, nargs="*", default=[0.0, 0.6, 0.9, 1.2])
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all workloads, with and without spreading; return the figures."""
    pairs = [("pair", exponent) for exponent in options.exponents]
    others = [(shape, max(options.exponents)) for shape in SHAPES if shape != "pair"]
    found = []
    for shape, exponent in (*pairs, *others):
        for seed in options.seeds:
            made = workload(shape, exponent, options.rows, options.batches, seed)
            sides = {}
            for hot in (False, True):
                tell(f"{shape}, {exponent}, seed {seed}, {'on' if hot else 'off'}")
                sides["on" if hot else "off"] = run(made, home / "run", hot=hot)
            results = made.results[shape]
            one = {"workload": shape, "exponent": exponent, "seed": seed, "results": results}
            found.append({**one, **sides})
    return {"runs": found}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table of the busiest host in each run, with and without spreading."""
    rows = []
    for one in entry["runs"]:
        on, off = one["on"], one["off"]
        rows.append(
            (
                one["workload"],
                f"{one['exponent']:g}",
                str(one["seed"]),
                f"{one['results']:,}",
                *(f"{side['busiest']:.2f}" for side in (off, on)),
                *(f"{on[kind]:.2f}" for kind in ("rows", "matches")),
                *(f"{on[kind]:.2f}" for kind in ("before", "after")),
                str(on["hot"]),
                f"{on['load'] / off['load']:.3f}",
                f"{on['bytes'] / off['bytes']:.2f}",
                *(str(side["moved"]) for side in (off, on)),
            )
        )
    head = (
        *("workload", "Zipf", "seed", "results", "busiest, off", "on", "rows, on", "matches, on"),
        *("predicted, off", "on", "hot values", "load", "bytes", "moved, off", "on"),
    )
    return [Grid("the busiest of three hosts, over their mean", head, tuple(rows))]


BENCHMARK = Benchmark("hot_keys", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("pmjoin", BENCHMARK, None, lambda _: None))

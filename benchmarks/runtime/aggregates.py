"""Time from a batch's arrival until many aggregating queries over one join all include it.

The queries read the same join of orders and line items, and differ in grouping, aggregates, HAVING
and conditions. A batch has some thousand joined rows. *Shown*: time from the admission of a batch
until its changes are in the sinks of all queries that are changed by every batch. *Batch*: time
from the admission to the batch's commit. Equal numbers of queries without aggregates, whose results
are only counted, show the cost of the joins alone. The final tables are compared with DuckDB's, and
the groups that queries share (by ``GET /v1/queries/{name}/plan``) with equal conditions and
groupings.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from anabranch_client.replay import tpch
from anabranch_client.replay.oracle import recorded_tables
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery
from anabranch_runtime.sinks.parquet import version_file
from benchmarks.command import Benchmark, made, quantile, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime.command import master, run
from benchmarks.session import PATIENCE, Session, WrongResultError, session

#: Number of line items at scale factor 1.
_ITEMS = 6_000_000
_JOIN = "orders o JOIN lineitem l ON l.l_orderkey = o.o_orderkey"
_TABLES = ("orders", "lineitem")
_KEYS = (
    "l.l_shipmode", "l.l_linenumber", "l.l_discount", "year(o.o_orderdate)", "l.l_quantity",
    "month(l.l_shipdate)", "month(o.o_orderdate)", "l.l_suppkey % 10",
)  # fmt: skip
_VALUES = (
    "count(*)", "sum(l.l_quantity)", "max(l.l_extendedprice)", "min(o.o_totalprice)",
    "avg(l.l_extendedprice)", "sum(l.l_extendedprice * (1 - l.l_discount))",
)  # fmt: skip


#: Conditions for every fifth query, in turn; conditions on groups for every fourth query.
_FILTERS = (
    "l.l_quantity > 10", "o.o_totalprice > 100000", "l.l_discount < 0.05", "l.l_linenumber < 4",
)  # fmt: skip
_HAVING = "count(*) > 1"


def aggregating(count: int) -> list[DemoQuery]:
    """Return ``count`` different aggregating queries."""
    some = itertools.product(itertools.combinations(_KEYS, 2), itertools.combinations(_VALUES, 3))
    found = []
    for number, (keys, values) in enumerate(itertools.islice(some, count)):
        listed = ", ".join(f"{v} AS v{n}" for n, v in enumerate(values))
        named = ", ".join(f"{k} AS k{n}" for n, k in enumerate(keys))
        source = f"{_source(number)} GROUP BY {', '.join(keys)}"
        source += f" HAVING {_HAVING}" if number % 4 == 1 else ""
        found.append(DemoQuery(f"a{number}", f"{named}, {listed}", source, _TABLES))
    return found


def joining(count: int) -> list[DemoQuery]:
    """Return ``count`` queries whose results are the joined rows."""
    shown = "o.o_orderkey, l.l_quantity"
    return [DemoQuery(f"j{n}", shown, _source(n), _TABLES) for n in range(count)]


def _source(number: int) -> str:
    fifth, rest = divmod(number, 5)
    return _JOIN if rest != 2 else f"{_JOIN} WHERE {_FILTERS[fifth % len(_FILTERS)]}"


def groupings(queries: Sequence[DemoQuery]) -> list[set[str]]:
    """Return sets of queries with equal conditions and groupings, by name."""
    found: dict[str, set[str]] = {}
    for query in queries:
        found.setdefault(query.sql.partition(" FROM ")[2].partition(" HAVING ")[0], set()).add(
            query.name
        )
    return list(found.values())


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 20, 60, 500])
    parser.add_argument("--rows", type=int, default=1000, help="joined rows of a batch")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=8, help="batches before")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run both kinds of queries for every number of queries; return the figures."""
    batches = options.batches + options.warm_up
    scale = options.rows * batches / _ITEMS
    every = tpch.generate(made(home / "input"), scale, batches)
    streams = [s for s in every if s.name in ("orders", "lineitem")]
    return {"counts": [_both(options, home, streams, n) for n in options.queries]}


def _both(
    options: argparse.Namespace, home: Path, streams: Sequence[RecordedStream], count: int
) -> dict[str, Any]:
    views, alone = aggregating(count), joining(count)
    delays, batches = _delays(options, home / f"views-{count}", streams, views)
    _, joins = _delays(options, home / f"joins-{count}", streams, alone)
    found = {
        "queries": count,
        "tables": len(groupings(views)),
        "shown_seconds": spread(delays, 4),
        "shown_p90": quantile(delays, 0.9),
        "batch_seconds": spread(batches, 4),
        "joins_batch_seconds": spread(joins, 4),
    }
    tell(
        f"{count} queries: shown after {quantile(delays, 0.5):.2f} s, batch "
        f"{quantile(batches, 0.5):.3f} s, of the joins alone {quantile(joins, 0.5):.3f} s"
    )
    return found


def _delays(
    options: argparse.Namespace,
    home: Path,
    streams: Sequence[RecordedStream],
    queries: Sequence[DemoQuery],
) -> tuple[list[float], list[float]]:
    """Return seconds from each batch's admission until all queries show it, and to its commit."""
    views = [q.name for q in queries if " GROUP BY " in q.sql]
    counted = [q.name for q in queries if q.name not in views]
    # Leave out queries with conditions, which a batch may not change. Tables are updated in order
    # of registration.
    changed = [q.name for q in queries if not any(w in q.sql for w in (" WHERE ", " HAVING "))]
    awaited = [name for name in views if name in changed]
    with session(
        home,
        streams,
        queries,
        master=master(options),
        parallelism=options.parallelism,
        epoch_batches=1_000_000,
        counted=counted,
    ) as system:
        system.start()
        results = system.pipeline.spec.results
        delays, seconds = list[float](), list[float]()
        for batch in range(options.warm_up + options.batches):
            began = time.time()
            system.gate(batch + 1)
            _await(lambda b=batch: len(system.log()) > b)
            committed = system.log()[batch].committed_at
            _await(lambda b=batch: _includes(results, awaited, b))
            if batch >= options.warm_up:
                delays.append(time.time() - began)
                seconds.append(committed - began)
        if views:
            _check(system, streams, queries)
            _check_shared(system, queries)
    return delays, seconds


def _includes(results: Path, views: Sequence[str], batch: int) -> bool:
    """Whether the sinks of all views have the version of ``batch``."""
    return all(version_file(results / view, batch + 1).exists() for view in reversed(views))


def _await(done: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("a batch is not shown")
        time.sleep(0.005)


def _check(
    system: Session, streams: Sequence[RecordedStream], queries: Sequence[DemoQuery]
) -> None:
    """Compare the result files of some queries with DuckDB's answers."""
    for query in queries[:: max(len(queries) // 5, 1)]:
        folder = system.pipeline.spec.results / query.name
        with recorded_tables(streams) as connection, duckdb.connect() as own:
            wanted = sorted(connection.sql(query.sql).fetchall(), key=repr)
            found = own.sql(
                "SELECT * EXCLUDE (nth, anabranch_change, anabranch_version) FROM (SELECT *, "
                "row_number() OVER (PARTITION BY k0, k1 ORDER BY anabranch_version DESC) AS nth "
                f"FROM read_parquet('{folder}/*.parquet'))"
                " WHERE nth = 1 AND anabranch_change = 'upsert'"
            ).fetchall()
        pairs = zip(sorted(found, key=repr), wanted, strict=False)
        if len(found) != len(wanted) or not all(map(_equal, *zip(*pairs, strict=True))):
            raise WrongResultError(f"{query.name}: {len(found)} rows, {len(wanted)} expected")


def _equal(row: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two rows are equal; DuckDB's averages of decimals are floats, hence the tolerance."""
    return all(
        a == b if isinstance(a, str) else math.isclose(float(a), float(b), rel_tol=1e-6)
        for a, b in zip(row, other, strict=True)
    )


def _check_shared(system: Session, queries: Sequence[DemoQuery]) -> None:
    """Compare the queries that share groups with the sets of queries with equal groupings."""
    for wanted in groupings(queries)[:5]:
        first = min(wanted)

        def shared(name: str = first) -> set[str]:
            table = system.client.query_plan(name).table
            return {name} if table is None else {name, *table.shared}

        _await(lambda w=wanted, s=shared: s() == w)


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per number of queries."""
    rows = [
        (
            str(one["queries"]),
            str(one["tables"]),
            shown(one["shown_seconds"], 2),
            f"{one['shown_p90']:.2f}",
            shown(one["batch_seconds"], 3),
            shown(one["joins_batch_seconds"], 3),
        )
        for one in entry["counts"]
    ]
    titles = ("queries", "tables of groups", "shown s", "p90 s", "batch s", "joins alone s")
    return [Grid("aggregating queries over one join", titles, tuple(rows))]


BENCHMARK = Benchmark(
    "aggregates", "many aggregating queries over one join", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))

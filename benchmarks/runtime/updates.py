"""CPU time of updates of rows, in the runtime without Spark (:mod:`benchmarks.engine`).

``others``: one row with one result is updated while other rows have a million results, which a view
groups. An upsert (whose delete the engine generates) alternates with an equivalent delete and
insert. ``own``: one row with a million results is updated, so that two million changes are written,
between two updates of another row; ``memory`` is the memory that the process allocates meanwhile,
sampled every 2 ms, with ``--memory`` as the limit of a host. ``state``: rows of many keys are
updated at random; rows and bytes of the store, and bytes of a view's table, are measured after
every batch. All results are compared with the drawn rows.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_client.processes.meter import Sampler
from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import Stream, StreamKind, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.cpu import CpuUses
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.memory import BASE
from benchmarks.command import Benchmark, spread
from benchmarks.engine import Blocks, Engine
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime.command import run
from benchmarks.session import WrongResultError
from tests.support.surroundings.redis import redis_url

PARTS = ("others", "own", "state")
_MEBI = 2**20
#: Key of the row that is updated.
_KEY = -1
_JOIN = "orders o JOIN prices p ON o.k = p.k"
_JOINED = DemoQuery("joined", "o.id, p.v", _JOIN, ("orders", "prices"))
_BY_ORDER = DemoQuery("by_order", "o.id, sum(p.v) AS s", f"{_JOIN} GROUP BY o.id", _JOINED.tables)
_BY_KEY = DemoQuery(
    "by_key",
    "o.k % 100 AS g, sum(p.v) AS s, max(p.v) AS m, count(DISTINCT p.v) AS d",
    f"{_JOIN} GROUP BY o.k % 100",
    _JOINED.tables,
)
_BIGINT = parse_type("bigint")
_STATUS = Path("/proc/self/status")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--results", type=int, default=1_000_000, help="of other rows, or its own")
    parser.add_argument("--memory", type=int, default=256, help="limit in MiB, for its own results")
    parser.add_argument("--rounds", type=int, default=15, help="updates of one row")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--updates", type=int, default=1_000_000, help="of rows of these keys")
    parser.add_argument("--batch", type=int, default=20_000, help="updates of a batch")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Measure every part separately."""
    parts = {"others": _others, "own": _own, "state": _state}
    return {name: parts[name](options, home / name) for name in options.parts}


class _Limited(Engine):
    """An engine whose tasks may use ``memory`` bytes."""

    memory: int | None = None

    def _job(self, context: BatchContext, blocks: Blocks) -> list[TaskReport]:
        return super()._job(replace(context, memory_limit=self.memory), blocks)


@dataclass(slots=True)
class _Prices:
    """A pipeline with orders and changing prices, by upserts or by deletes and inserts."""

    home: Path
    url: str
    queries: Sequence[DemoQuery]
    upserts: bool
    parallelism: int
    memory: int | None = None
    engine: _Limited = field(init=False)
    #: Key -> its price.
    known: dict[int, int] = field(init=False, default_factory=dict)
    orders: list[NDArray[np.int64]] = field(init=False, default_factory=list)
    _beside: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        columns = (("k", _BIGINT), ("v", _BIGINT))
        form = ChangeFormat(operation=None, key=("k",)) if self.upserts else ChangeFormat()
        kind = StreamKind.UPSERT if self.upserts else StreamKind.CHANGES
        prices = Stream(StreamName("prices"), columns, kind=kind, changes=form, retain=None)
        orders = Stream(StreamName("orders"), (("k", _BIGINT), ("id", _BIGINT)))
        self.engine = _Limited(
            self.home, self.url, [prices, orders], self.queries, parallelism=self.parallelism
        )
        self.engine.memory = self.memory
        self.engine.driver.tables.beside = self._count

    def _count(self, uses: CpuUses) -> None:
        self._beside += sum(spent for (group, _), spent in uses.items() if group is CpuGroup.VIEW)

    def price(self, keys: NDArray[np.int64], values: NDArray[np.int64]) -> float:
        """Run a batch that sets the prices of different keys; return its CPU seconds."""
        pairs = list(zip(keys.tolist(), values.tolist(), strict=True))
        if self.upserts:
            rows = pa.RecordBatch.from_pydict({"k": keys, "v": values})
        else:
            old = [(k, self.known[k], "delete") for k, _ in pairs if k in self.known]
            changes = [*old, *((k, v, "insert") for k, v in pairs)]
            columns = zip(*changes, strict=True)
            rows = pa.RecordBatch.from_pydict(dict(zip(("k", "v", "op"), columns, strict=True)))
        self.known |= dict(pairs)
        return self._run(Block("prices", rows))

    def order(self, keys: NDArray[np.int64]) -> None:
        """Run a batch with one order for each of ``keys``."""
        first = sum(map(len, self.orders))
        self.orders.append(keys)
        ids = np.arange(first, first + len(keys))
        self._run(Block("orders", pa.RecordBatch.from_pydict({"k": keys, "id": ids})))

    def _run(self, block: Block) -> float:
        self._beside = 0.0
        began = time.process_time()
        self.engine.run(lambda *_: [block])
        self.engine.driver.tables.drain()
        return time.process_time() - began + self._beside

    @property
    def table_bytes(self) -> int:
        """Return the bytes of all maintained tables."""
        costs: Mapping[str, Any] = self.engine.driver.tables.costs()
        return sum(cost.bytes for cost in costs.values())

    def check(self) -> None:
        """Compare the sum of the joined query's changes with the prices of all orders.

        Raises:
            WrongResultError: they differ.
        """
        self.engine.finish()
        keys = np.concatenate(self.orders)
        files = str(self.home / "results" / _JOINED.name / "*.parquet")
        with duckdb.connect() as connection:
            connection.register("orders", pa.table({"k": keys, "id": np.arange(len(keys))}))
            prices = {"k": list(self.known), "v": list(self.known.values())}
            connection.register("prices", pa.table(prices))
            signed = "sum(CASE anabranch_change WHEN 'insert' THEN 1 ELSE -1 END)"
            wrong = connection.sql(
                f"SELECT count(*) FROM (SELECT id, v, sum(n) AS n FROM (SELECT id, v, {signed} AS n"
                f" FROM read_parquet('{files}') GROUP BY id, v UNION ALL"
                " SELECT id, v, -1 FROM orders JOIN prices USING (k)) GROUP BY id, v HAVING"
                " sum(n) <> 0)"
            ).fetchall()[0][0]
        if wrong:
            raise WrongResultError(f"{wrong} results differ")


def _begun(prices: _Prices, results: int, keys: int) -> None:
    """Give ``results`` results to rows with ``keys`` keys, and one result to the updated row."""
    prices.price(np.arange(keys), np.arange(keys))
    prices.price(np.array([_KEY]), np.array([0]))
    prices.order(np.arange(results) % keys)
    prices.order(np.array([_KEY]))


def _others(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    few = max(options.results // 1000, 1)
    worlds = dict[str, _Prices]()
    with ExitStack() as stack:
        for name, upserts, results in (
            ("upsert", True, options.results),
            ("delete_and_insert", False, options.results),
            ("upsert_alone", True, 1),
        ):
            url = stack.enter_context(redis_url())
            queries = [_JOINED, _BY_ORDER]
            made = _Prices(home / name, url, queries, upserts, options.parallelism)
            worlds[name] = made
            _begun(made, results, min(few, results))
        spent: dict[str, list[float]] = {name: [] for name in worlds}
        # The first update of each kind compiles kernels, and loads data that later ones find in
        # memory.
        for number in range(1, options.rounds + 2):
            for name, made in worlds.items():
                seconds = made.price(np.array([_KEY]), np.array([number]))
                if number > 1:
                    spent[name].append(seconds)
        for made in worlds.values():
            made.check()
            made.engine.driver.tables.close()
    pairs = list(zip(*spent.values(), strict=True))
    found = {
        "results": options.results,
        "cpu": {name: spread(some, 4) for name, some in spent.items()},
        "of_delete_and_insert": spread((one / two for one, two, _ in pairs), 3),
        "of_alone": spread((one / three for one, _, three in pairs), 3),
    }
    tell(f"one row beside {options.results:,} results: {found['cpu']}")
    return found


def _own(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    sizes = (max(options.results // 4, 1), options.results)
    found = [_own_of(options, home / str(size), size) for size in sizes]
    return {"allowed_mib": options.memory - BASE / _MEBI, "sizes": found}


def _own_of(options: argparse.Namespace, home: Path, results: int) -> dict[str, Any]:
    key, other = np.array([_KEY]), np.array([0])
    before, own, after, memory = list[float](), list[float](), list[float](), list[float]()
    with redis_url() as url:
        limit = options.memory * _MEBI
        made = _Prices(home, url, [_JOINED], True, options.parallelism, limit)
        made.price(np.array([_KEY, 0]), np.array([0, 0]))
        made.order(other)
        made.order(np.full(results, _KEY))
        # The first updates compile kernels, and load data that later ones find in memory.
        for number in range(_UPDATES + 1):
            first = made.price(other, np.array([2 * number + 1]))
            meter = _Anonymous(0.002)
            meter.start()
            middle = made.price(key, np.array([number + 1]))
            meter.stop()
            last = made.price(other, np.array([2 * number + 2]))
            if number:
                before.append(first)
                own.append(middle)
                memory.append(meter.most / _MEBI)
                after.append(last)
        made.check()
    found = {
        "results": results,
        "cpu": spread(own, 3),
        "memory_mib": spread(memory, 1),
        "other_before": spread(before, 4),
        "other_after": spread(after, 4),
        "after_over_before": spread((b / a for a, b in zip(before, after, strict=True)), 3),
    }
    tell(f"one row with {results:,} results: {found['cpu']}, {found['memory_mib']} MiB")
    return found


#: Number of measured updates of the row.
_UPDATES = 7


class _Anonymous(Sampler):
    """Samples the bytes that this process has allocated; ``most``: greatest number so far, minus
    the number at the start.
    """

    most = 0
    _first = 0

    def sample(self) -> None:
        """Take one sample (see :class:`Sampler`)."""
        found = re.search(r"^RssAnon:\s*(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        assert found is not None
        self.most = max(self.most, int(found[1]) * 1024 - self._first)

    def begin(self) -> None:
        """Set the baseline (see :class:`Sampler`)."""
        self._first, self.most = self.most, 0


def _state(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    draw = np.random.default_rng(7)
    batches = max(options.updates // options.batch, 4)
    rows, sizes, tables = list[int](), list[int](), list[int]()
    with redis_url() as url:
        made = _Prices(home, url, [_JOINED, _BY_KEY], True, options.parallelism)
        made.order(np.arange(min(options.keys, 1000)))
        made.price(np.arange(options.keys), np.zeros(options.keys, np.int64))
        for number in range(batches):
            keys = draw.choice(options.keys, min(options.batch, options.keys), replace=False)
            made.price(keys, draw.integers(0, 1_000_000, len(keys)))
            stores = made.engine.driver.state.stores
            held = [store for name, store in stores.items() if str(name).startswith("prices")]
            rows.append(sum(segment.rows for store in held for segment in store.segments))
            sizes.append(sum(segment.bytes for store in held for segment in store.segments))
            tables.append(made.table_bytes)
            if (number + 1) % max(batches // 4, 1) == 0:
                tell(f"{(number + 1) * options.batch:,} updates: {rows[-1]:,} rows stored")
        made.check()
        made.engine.driver.tables.close()
    quarters = np.array_split(np.arange(batches), 4)
    return {
        "keys": options.keys,
        "updates": batches * options.batch,
        "quarters": [
            {
                "rows": spread(rows[b] for b in some),
                "bytes": spread(sizes[b] for b in some),
                "table_bytes": spread(tables[b] for b in some),
            }
            for some in quarters
        ],
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables, one per part."""
    grids = {"others": _others_grid, "own": _own_grid, "state": _state_grid}
    return [grid(entry[name]) for name, grid in grids.items() if name in entry]


def _others_grid(one: dict[str, Any]) -> Grid:
    rows = [(name.replace("_", " "), shown(s, 1, unit=1e-3)) for name, s in one["cpu"].items()]
    title = f"update of one row beside {one['results']:,} results of other rows"
    return Grid(title, ("", "CPU ms"), tuple(rows))


def _own_grid(own: dict[str, Any]) -> Grid:
    rows = [
        (
            *(f"{one['results']:,}", shown(one["cpu"], 2), shown(one["memory_mib"], 1)),
            *(shown(one[f"other_{when}"], 1, unit=1e-3) for when in ("before", "after")),
        )
        for one in own["sizes"]
    ]
    titles = ("results", "CPU s", "memory MiB", "another row before ms", "after ms")
    return Grid("update of one row with results of its own", titles, tuple(rows))


def _state_grid(one: dict[str, Any]) -> Grid:
    rows = [
        (
            *(f"{number} of 4", shown(part["rows"]), shown(part["bytes"], 1, unit=_MEBI)),
            shown(part["table_bytes"], 2, unit=_MEBI),
        )
        for number, part in enumerate(one["quarters"], 1)
    ]
    title = f"state under {one['updates']:,} updates of {one['keys']:,} keys"
    return Grid(title, ("updates", "rows", "store MiB", "table MiB"), tuple(rows))


BENCHMARK = Benchmark(
    "updates", "updates of rows, and the state that they leave", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))

"""Several substreams, partitions and tasks on one host, compared with one of each.

`python -m benchmarks.pmjoin.defaults [--json] [--scale 0.1] [--ds-scale 0.1] [--rounds 7]`

The real planner, driver and worker run in one process, without Spark. *One key* is the workload
*different* of `benchmarks.pmjoin.skew`, Zipf 1.2, batches of 100,000 tuples. *TPC-H* has the five
joins of `benchmarks.throughput`. *TPC-DS* has three joins of sales, returns, customers and items,
by item and by customer; rows are shuffled, and a row's position in its stream is its event time.
Each workload has eight batches of equal size, and every epoch of two batches is planned with the
statistics of the previous epoch; the first two epochs are not measured. Runs alternate between one
substream (*kind*) and at most four, one partition per store and four, one task and two (threads of
one process). DuckDB counts the expected results.

*work* is the number of probes and matches of all steps, *time* the run time of all measured
batches, *CPU* their CPU time plus that of planning, and *planning* the time of making one plan from
the last statistics: all as ratios to the run with one substream, one partition and one task in the
same round. *Least* are ratios of the least time and CPU time of all rounds, since other processes
can only slow a run down. *Same rules*: every epoch has the same ruleset as in the first row, byte
for byte. *s* are seconds of all measured batches.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.plans import ruleset as rulesets
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.pmjoin.looking_ahead import tpch_joins
from benchmarks.pmjoin.skew import Skew
from benchmarks.pmjoin.turns import (
    Figures,
    in_turns,
    kinds_chosen,
    measured,
    pipeline,
    planning_seconds,
    ratio,
)
from benchmarks.pmjoin.workloads import TIME, Workload, counted, cut
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.state import tpcds
from benchmarks.state.command import CACHE

#: Figures of a run, and the rulesets of its epochs as texts.
Run = tuple[Figures, list[str]]


ONE_KEY = Skew("different", 1.2, 20_000)
#: Number of batches, number of batches per epoch, and number of first batches that are not
#: measured.
BATCHES, EVERY, WARM = 8, 2, 4
#: Columns of TPC-DS's tables that the joins read, by table.
COLUMNS = {
    "store_sales": ("ss_item_sk", "ss_customer_sk", "ss_ticket_number", "ss_quantity"),
    "store_returns": ("sr_item_sk", "sr_customer_sk", "sr_ticket_number", "sr_return_quantity"),
    "catalog_sales": ("cs_item_sk", "cs_bill_customer_sk", "cs_quantity"),
    "customer": ("c_customer_sk", "c_birth_year"),
    "item": ("i_item_sk", "i_category_id"),
}
_RETURNED = (
    "store_sales JOIN store_returns ON sr_item_sk = ss_item_sk"
    " AND sr_customer_sk = ss_customer_sk AND sr_ticket_number = ss_ticket_number"
)
TPCDS = (
    DemoQuery(
        "returned",
        "ss_quantity, sr_return_quantity, c_birth_year, i_category_id",
        f"{_RETURNED} JOIN customer ON c_customer_sk = ss_customer_sk"
        " JOIN item ON i_item_sk = ss_item_sk",
        ("store_sales", "store_returns", "customer", "item"),
    ),
    DemoQuery(
        "bought again",
        "ss_quantity, sr_return_quantity, cs_quantity, i_category_id",
        f"{_RETURNED} JOIN catalog_sales ON cs_bill_customer_sk = sr_customer_sk"
        " JOIN item ON i_item_sk = cs_item_sk",
        ("store_sales", "store_returns", "catalog_sales", "item"),
    ),
    DemoQuery(
        "customers",
        "sr_return_quantity, cs_quantity, c_birth_year",
        "store_returns JOIN catalog_sales ON cs_bill_customer_sk = sr_customer_sk"
        " JOIN customer ON c_customer_sk = cs_bill_customer_sk",
        ("store_returns", "catalog_sales", "customer"),
    ),
)
#: Figures that are compared between runs.
FIGURES = ("work", "seconds", "cpu", "planning")
LEAST = ("seconds", "cpu")


@dataclass(frozen=True, slots=True)
class Side:
    """Setting of a run: maximum number of substreams (kinds), partitions per store, tasks."""

    most: int = 1
    partitions: int = 1
    tasks: int = 1


SIDES = (Side(), Side(4), Side(1, 4), Side(4, 4), Side(1, 1, 2), Side(1, 4, 2))


def tpcds_joins(folder: Path, batches: int) -> Workload:
    """Make the workload of three TPC-DS joins, over tables in random order in ``folder``."""
    tables = {}
    for name, columns in COLUMNS.items():
        table = pq.read_table(folder / f"{name}.parquet", columns=list(columns))
        numbers = np.arange(table.num_rows) * 1_000_000
        times = pa.array(numbers.astype("datetime64[us]")).cast(pa.timestamp("us", "UTC"))
        tables[name] = table.append_column(TIME, times)
    return counted("TPC-DS", cut(tables, batches), TPCDS)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, default=0.1, help="of TPC-H")
    parser.add_argument("--ds-scale", type=float, default=0.1, help="of TPC-DS; 0: leave it out")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for TPC-DS")
    parser.add_argument("--rounds", type=int, default=7)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all workloads with all settings; return the figures."""
    workloads = [
        ONE_KEY.workload(),
        tpch_joins(home / "tables", options.scale, BATCHES),
    ]
    if options.ds_scale:
        folder = tpcds.data(options.ds_scale, options.cache, COLUMNS)
        workloads.append(tpcds_joins(folder, BATCHES))
    rows = [row for one in workloads for row in _compared(one, options.rounds, home / "run")]
    return {"rows": rows}


def _compared(workload: Workload, rounds: int, home: Path) -> list[dict[str, Any]]:
    runs = in_turns(SIDES, rounds, lambda side: _run(workload, side, home))
    results, (first, rules) = sum(workload.results.values()), _apart(runs[SIDES[0]])
    found = []
    for side, ran in runs.items():
        some, others = _apart(ran)
        about = {"workload": workload.name, "results": results, **asdict(side)}
        ratios = {name: ratio(some, first, name) for name in FIGURES}
        least = {f"least {name}": _least(some, name) / _least(first, name) for name in LEAST}
        took = spread((run["seconds"] for run in some), 3)
        chosen, same = some[0]["chosen"], others == rules
        found.append({**about, "same": same, "chosen": chosen, **ratios, **least, "took": took})
        tell(str(found[-1]))
    return found


def _apart(runs: Sequence[Run]) -> tuple[list[Figures], list[str]]:
    """Return the figures of all runs of a setting, and the rulesets of the first one."""
    return [figures for figures, _ in runs], runs[0][1]


def _least(some: Sequence[Figures], figure: str) -> float:
    return min(run[figure] for run in some)


def _run(workload: Workload, side: Side, home: Path) -> Run:
    with pipeline(
        workload,
        home,
        every=EVERY,
        tasks=side.tasks,
        substreams=side.most,
        parallelism=side.partitions,
    ) as engine:
        found = measured(engine, workload, WARM)
        found |= {"chosen": kinds_chosen(engine), "planning": planning_seconds(engine)}
        epochs = range(len(workload.batches) // EVERY)
        return found, [rulesets.dumps(engine.ruleset(epoch)) for epoch in epochs]


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per workload and setting."""
    rows = [
        (
            row["workload"],
            f"{row['results']:,}",
            *(str(row[name]) for name in ("most", "partitions", "tasks")),
            f"{row['chosen']:.0f}",
            "yes" if row["same"] else "no",
            f"{row['took']['median']:.2f}",
            *(f"{row[name]['median']:.3f}" for name in FIGURES),
            *(f"{row[f'least {name}']:.3f}" for name in LEAST),
        )
        for row in entry["rows"]
    ]
    head = ("workload", "results", "kinds at most", "partitions", "tasks", "kinds of all starts",
            "same rules", "s", "work ×", "time ×", "CPU ×", "planning ×", "least time ×",
            "least CPU ×")  # fmt: skip
    return [Grid("substreams and partitions", head, tuple(rows))]


BENCHMARK = Benchmark("defaults", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("pmjoin", BENCHMARK, None, lambda _: None))

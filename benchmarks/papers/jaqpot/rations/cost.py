"""Cost of rationing while nothing is withheld, and of planning schedules of rations.

``python -m benchmarks.papers jaqpot cost [--json] [--pairs 300]``

*Batches.* A live driver and worker in this process, without Spark, process streams batch by batch;
the size of their state is about constant. Batches come in pairs: for one of the two, in random
order, Redis has the service's schedule, as under the policy ``ration``; for the other it has none,
as under ``wait``. The runtime's own ``Rationer`` reads the schedule, watches the load, and
withholds nothing, since there is enough time; this is checked. CPU times of whole batches,
including commits, are compared. The interval of the median ratio is that of the sign test, with 95
% confidence. Batches are small (a few thousand rows); in larger ones the policy costs relatively
less.

*Planning.* The table has CPU milliseconds of one allocation and of whole schedules over random
forests, and of the service's schedule from measurements of this run's steps.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import redis

from anabranch_contract.plans.rations import Allocation, RationSchedule
from anabranch_contract.protocol.progress import Mode
from anabranch_planner.allocation.schedule import schedule
from benchmarks.command import Benchmark, cpu_milliseconds
from benchmarks.engine import Engine
from benchmarks.papers.jaqpot.rations.command import redis_url, run_part
from benchmarks.papers.jaqpot.rations.policies import Calibrated
from benchmarks.papers.jaqpot.rations.random_forests import random_forest
from benchmarks.papers.jaqpot.rations.runs import Division, Planned, plan_once, run
from benchmarks.papers.jaqpot.rations.workloads import calm
from benchmarks.report.figures import Spread, tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.session import WrongResultError
from tests.support.oracles.most_results import most_results

#: Number of first batches that are not compared: stores fill up to their windows.
WARM = 20
#: Number of batches from which the schedule is planned.
CALIBRATING = 10
EDGES = (100, 1000)
ROUNDS = 9


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--size", type=float, default=4.0, help="1: 900 rows a batch")
    parser.add_argument("--seed", type=int, default=7, help="of the order within pairs")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run batches with and without a schedule, and time the planning; return the figures."""
    with redis_url() as url:
        plan = plan_once(calm(options.size, CALIBRATING), home, url)
        known = Calibrated(plan, run(plan, home / "full", url, Division()).interim)
        found = _batches(options, plan, known.planned(Allocation.FAIR), home / "pairs", url)
    planning = [_random(edges) for edges in EDGES]
    measured = {a.value: cpu_milliseconds(partial(known.planned, a), ROUNDS) for a in Allocation}
    return {"batches": found, "planning": planning, "service": measured}


def _batches(
    options: argparse.Namespace, plan: Planned, planned: RationSchedule, home: Path, url: str
) -> dict[str, Any]:
    work = calm(options.size, WARM + 2 * options.pairs)
    engine = Engine(
        home,
        url,
        work.streams,
        work.queries,
        every=work.batches,
        rules=plan.rules,
        mode=Mode.LIVE,
    )
    server, key = redis.Redis.from_url(url), engine.driver.control.keys.rations
    document, random = planned.dumps(), Random(options.seed)
    ratios: list[float] = []
    seconds: dict[bool, list[float]] = {True: [], False: []}
    first = True
    for batch in range(work.batches):
        pair, place = divmod(batch - WARM, 2)
        if pair >= 0 and place == 0:
            first = random.random() < 0.5
        rationed = first == (place == 0)
        if rationed:
            server.set(key, document)
        else:
            server.delete(key)
        blocks = work.blocks(batch)
        began = time.process_time()
        engine.run(lambda task, tasks, blocks=blocks: blocks)  # type: ignore[misc]
        spent = time.process_time() - began
        if engine.driver.state.rationed:
            raise WrongResultError(f"batch {batch} was rationed: there is an overload")
        if pair >= 0:
            seconds[rationed].append(spent)
            if place == 1:
                ratios.append(seconds[True][-1] / seconds[False][-1])
        if pair >= 0 and place == 1 and (pair + 1) % 100 == 0:
            tell(f"{pair + 1} pairs: median ratio {statistics.median(ratios):.4f}")
    engine.finish()
    low, high = Spread.of(ratios).interval
    medians = {on: statistics.median(found) for on, found in seconds.items()}
    return {
        "pairs": len(ratios),
        "rows": work.tuples // work.batches,
        "ms": {"ration": round(1e3 * medians[True], 3), "wait": round(1e3 * medians[False], 3)},
        "ratio": round(statistics.median(ratios), 5),
        "low": round(low, 5),
        "high": round(high, 5),
        "ratio of medians": round(medians[True] / medians[False], 5),
    }


def _random(edges: int) -> dict[str, Any]:
    """Return the figures of planning over a random forest of about ``edges`` steps."""
    # The generator draws the number of steps, so forests are drawn until it is about right.
    drawn = (
        random_forest(Random(seed), steps=edges, goals=edges // 2, queries=max(edges // 8, 1))
        for seed in range(1000)
    )
    forest = next(f for f in drawn if len(f.steps) >= 0.95 * edges and len(f.goals) > edges // 4)
    found: dict[str, Any] = {
        "edges": len(forest.steps),
        "goals": len(forest.goals),
        "allocation": cpu_milliseconds(lambda: most_results(forest, 0.5 * forest.full), ROUNDS),
        **{
            allocation.value: cpu_milliseconds(partial(schedule, forest, allocation, {}), ROUNDS)
            for allocation in Allocation
        },
    }
    tell(f"{edges} edges: one allocation {found['allocation']['median']} ms")
    return found


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables of batches and of planning."""
    one = entry["batches"]
    batches = (
        str(one["pairs"]),
        f"{one['rows']:,}",
        *(f"{one['ms'][policy]:.2f}" for policy in ("wait", "ration")),
        f"{one['ratio']:.4f} ({one['low']:.4f}–{one['high']:.4f})",
        f"{one['ratio of medians']:.4f}",
    )
    planning = tuple(
        (
            "random",
            str(found["edges"]),
            str(found["goals"]),
            *(shown(found[what], 1) for what in ("allocation", "results", "fair")),
        )
        for found in entry["planning"]
    )
    own = entry["service"]
    return [
        Grid(
            "CPU time of batches without overload",
            (
                "pairs",
                "rows a batch",
                "wait, ms",
                "ration, ms",
                "ratio, median of pairs",
                "of medians",
            ),
            (batches,),
            texts=0,
        ),
        Grid(
            "CPU milliseconds of planning",
            ("forest", "edges", "goals", "one allocation", "schedule 'results'", "schedule 'fair'"),
            (*planning, ("measured", "", "", "", *(shown(own[w], 1) for w in ("results", "fair")))),
        ),
    ]


BENCHMARK = Benchmark(
    "cost", "rations where nothing is withheld, and planning them", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run_part(BENCHMARK))

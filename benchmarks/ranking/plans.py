"""Objectives against measured CPU time: do they rank plans as the runtime does?

`python -m benchmarks.ranking.plans [--json] [--rows 16000] [--batches 36] [--rounds 3]`

The real driver and worker run in one process, with one task and one partition, without Spark. There
are six workloads: four streams joined by one key (*one key*: Zipf 1.2, with different frequent
values in each stream; *uniform*: all values are equally frequent), in a *chain* by two such keys,
and in a *star* by three; the five joins of TPC-H; and three joins of TPC-DS of up to four tables.
Each workload first runs with the plan of the objective `tuples` without merges (the former
default), in epochs of six batches; all plans are priced with the statistics at the end of this run.
Candidates are the optimal plans by every price, with and without intermediate results, and optimal
plans under statistics with random errors; duplicates are left out. Each candidate runs through all
batches, in turns, and its CPU time is the median of the rounds. On a machine with other work it
varies by some per cent.

Prices exclude *merges*, or include them (*and merges*). *Fitted* prices have constants fitted to
the steps, inserts and merges of the first run, as a live pipeline fits constants to its own
measurements. *Tau* is Kendall's correlation (tau-b) of prices and CPU times. *Regret* is the
additional CPU time of the plan with the least price compared with the best plan. *By counts*,
prices use the operations that a run counted instead of estimated ones, so that only the weights of
operations cause errors.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import redis

from anabranch_contract.plans.plan import Objective, Plan
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.fit import fit
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from benchmarks.command import Benchmark, run_benchmark
from benchmarks.engine import NAMESPACE, Engine
from benchmarks.pmjoin.workloads import Workload
from benchmarks.ranking.runs import Done, run
from benchmarks.ranking.scores import regret, tau
from benchmarks.ranking.workloads import workloads
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.state.command import CACHE
from tests.support.surroundings.redis import redis_url

#: Batches per epoch of the first run.
EVERY = 6
#: Number of erroneous statistics with which further plans are made, and standard deviation of the
#: logarithms of their errors.
WRONG, ERROR = 12, 1.5
#: The constants of ``seconds`` from the time when prices did not include merges.
BEFORE = CostConstants(
    call=2.7e-4, probe=8e-8, look=1e-8, match=5e-8, write=4e-4, row=1.6e-7, merge=0.0, rewrite=0.0
)


@dataclass(frozen=True, slots=True)
class Price:
    """A way to price plans.

    Attributes:
        merging: whether the price includes merges.
        constants: cost constants of ``seconds``; None: they are fitted to the first run.
    """

    name: str
    objective: Objective
    merging: bool
    constants: CostConstants | None = None


PRICES = (
    Price("tuples", Objective.TUPLES, False, BEFORE),
    Price("tuples and merges", Objective.TUPLES, True, CostConstants()),
    Price("seconds", Objective.SECONDS, False, BEFORE),
    Price("seconds and merges", Objective.SECONDS, True, CostConstants()),
    Price("seconds, fitted", Objective.SECONDS, False),
    Price("seconds and merges, fitted", Objective.SECONDS, True),
)


def _wrong(known: Statistics, seed: int) -> Statistics:
    """Return statistics whose cardinalities and distinct counts have random errors."""

    def factor(name: str) -> float:
        return Random(f"{seed} {name}").lognormvariate(0.0, ERROR)

    return replace(
        known,
        cardinalities={r: size * factor(r) for r, size in known.cardinalities.items()},
        distincts={
            key: count * factor(f"{key[0]} {key[1]}") for key, count in known.distincts.items()
        },
    )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=16_000, help="of a batch")
    parser.add_argument("--batches", type=int, default=36)
    parser.add_argument("--scale", type=float, default=0.05, help="of TPC-H; 0: leave it out")
    parser.add_argument("--ds-scale", type=float, default=0.1, help="of TPC-DS; 0: leave it out")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for TPC-DS")
    parser.add_argument("--most", type=int, default=8, help="plans of a workload")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all workloads; return, for each, its plans with their CPU times and prices."""
    scales = options.scale, options.ds_scale
    made = workloads(options.rows, options.batches, scales, options.cache, home, options.seed)
    return {"workloads": [_ranked(one, options.most, options.rounds, home) for one in made]}


@dataclass(frozen=True, slots=True)
class Prepared:
    """The candidate plans of a workload with their rulesets, and the statistics for each price."""

    queries: Sequence[JoinQuery]
    prices: Mapping[str, Statistics]
    plans: Sequence[Plan]
    rules: Sequence[Ruleset]


def prepared(workload: Workload, most: int, home: Path) -> Prepared:
    """Run a workload once below ``home``, and return at most ``most`` candidate plans."""
    by_name: dict[str, Stream] = {s.name: s for s in workload.streams}
    queries = [parse_sql(q.name, q.sql, by_name) for q in workload.queries]
    known, fitted = first_run(workload, home)
    batches = len(workload.batches)
    prices = {p.name: _statistics(known, p, fitted, batches) for p in PRICES}
    plans = list(candidates(queries, prices, most))
    rules = [
        compile_ruleset(plan, queries, workload.streams, epoch=0, parallelism=1, sinks={})
        for plan in plans
    ]
    return Prepared(queries, prices, plans, rules)


def _ranked(workload: Workload, most: int, rounds: int, home: Path) -> dict[str, Any]:
    ready = prepared(workload, most, home / "run")
    queries, prices, plans, rules = ready.queries, ready.prices, ready.plans, ready.rules
    runs: list[list[Done]] = [[] for _ in plans]
    for number in range(rounds):
        for at in range(len(plans))[:: -1 if number % 2 else 1]:
            # Leave out the first batch, which compiles kernels.
            runs[at].append(sum(run(workload, home / "run", rules[at])[1:], Done()))
            tell(f"{workload.name}, round {number + 1}, plan {at + 1}: {runs[at][-1]}")
    found = []
    for plan, done in zip(plans, runs, strict=True):
        expected = {
            p.name: cost_of(replace(plan, objective=p.objective), queries, prices[p.name])
            for p in PRICES
        }
        counted = {p.name: by_counts(done[0], p, prices[p.name]) for p in PRICES}
        found.append(
            {
                "mirs": sorted(m.id for m in plan.mirs if not m.is_base),
                "cpu": round(statistics.median(one.cpu for one in done), 4),
                "counts": {
                    name: getattr(done[0], name) for name in Done.__slots__ if name != "cpu"
                },
                "expected": expected,
                "by_counts": counted,
            }
        )
    return {"workload": workload.name, "results": sum(workload.results.values()), "plans": found}


def first_run(workload: Workload, home: Path) -> tuple[Statistics, CostConstants]:
    """Run a workload by the former default; return the last statistics and fitted constants."""
    results = Counter[str]()
    with redis_url() as url:
        engine = Engine(
            home,
            url,
            workload.streams,
            workload.queries,
            parallelism=1,
            every=EVERY,
            merging=False,
            interim_seconds=0.0,
        )
        for number in range(len(workload.batches)):
            engine.run(partial(workload.blocks, number))
            for report in engine.reports:
                results.update(report.results)
        # One more batch begins the next epoch, which stores the last epoch's statistics.
        engine.run(lambda task, tasks: [])
        known = engine.statistics()
        texts = redis.Redis.from_url(url).lrange(Keys(NAMESPACE).interims, 0, -1)
        assert isinstance(texts, list)
        # Leave out the first batch, which compiles kernels.
        periods = [Interim.loads(text) for text in texts][1:]
        engine.finish()
    shutil.rmtree(home)
    steps = [step.counts for period in periods for step in period.steps]
    inserts, merges = [p.inserts for p in periods], [p.merges for p in periods]
    return known, fit(steps, inserts, merges, CostConstants())


def _statistics(known: Statistics, price: Price, fitted: CostConstants, batches: int) -> Statistics:
    """Return ``known`` with the constants of ``price``, scaled to the whole history, as
    costs are.
    """
    measured = known.constants
    assert measured is not None
    constants = replace(
        price.constants or fitted,
        calls=measured.calls,
        looks=measured.looks,
        batches=batches if price.merging else 1.0,
    )
    return replace(known, ahead=None, constants=constants)


def candidates(
    queries: Sequence[JoinQuery], prices: Mapping[str, Statistics], most: int
) -> Iterator[Plan]:
    """Return at most ``most`` different plans; the optimal plans by all prices come first."""
    seen = set()
    for known, options in _makers(prices):
        plan = optimise(queries, known, options)
        prints = footprint(plan, queries)
        key = frozenset(prints.steps), frozenset(prints.copies)
        if key not in seen:
            seen.add(key)
            yield plan
        if len(seen) == most:
            return


def _makers(prices: Mapping[str, Statistics]) -> Iterator[tuple[Statistics, Options]]:
    for price in PRICES:
        yield prices[price.name], Options(objective=price.objective)
    for price in PRICES[0], PRICES[3]:
        yield prices[price.name], Options(objective=price.objective, mir=False)
    for seed in range(WRONG):
        price = PRICES[0] if seed % 2 else PRICES[2]
        yield _wrong(prices[price.name], seed), Options(objective=price.objective)


def by_counts(done: Done, price: Price, statistics: Statistics) -> float:
    """Return the price of the operations that a run counted."""
    known = statistics.constants
    assert known is not None
    if price.objective is Objective.TUPLES:
        return float(done.probes + done.rows + (done.rewritten if price.merging else 0))
    total = (
        known.call * done.calls
        + known.probe * done.probes
        + known.look * done.looked
        + known.match * done.matches
        + known.write * done.writes
        + known.row * done.rows
    )
    return total + price.merging * (known.merge * done.merges + known.rewrite * done.rewritten)


def scores(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return tau and regret per workload, price and kind of price (``expected``, ``by_counts``)."""
    found = []
    for one in entry["workloads"]:
        cpu = [plan["cpu"] for plan in one["plans"]]
        for price in PRICES:
            row: dict[str, Any] = {"workload": one["workload"], "price": price.name}
            for kind in ("expected", "by_counts"):
                priced = [plan[kind][price.name] for plan in one["plans"]]
                row[f"{kind} tau"], row[f"{kind} regret"] = tau(priced, cpu), regret(priced, cpu)
            found.append(row)
    return found


_FIGURES = ("expected tau", "expected regret", "by_counts tau", "by_counts regret")


def means(entry: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Map each price to the means of its figures over workloads."""
    rows = scores(entry)
    return {
        price.name: {
            figure: statistics.fmean(r[figure] for r in rows if r["price"] == price.name)
            for figure in _FIGURES
        }
        for price in PRICES
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: means over workloads, figures of each workload, and the plans."""
    head = ("price", "tau", "regret", "tau by counts", "regret by counts")
    summary = Grid(
        "means over workloads",
        head,
        tuple((name, *_shown(figures)) for name, figures in means(entry).items()),
    )
    each = Grid(
        "by workload",
        ("workload", *head),
        tuple((row["workload"], row["price"], *_shown(row)) for row in scores(entry)),
        texts=2,
    )
    return [summary, each, _plans(entry)]


def _shown(figures: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{figures[name]:.2f}" if name.endswith("tau") else f"{100 * figures[name]:.1f} %"
        for name in _FIGURES
    )


def _plans(entry: dict[str, Any]) -> Grid:
    rows = []
    for one in entry["workloads"]:
        best = min(plan["cpu"] for plan in one["plans"])
        for plan in sorted(one["plans"], key=lambda p: p["cpu"]):
            counts = plan["counts"]
            rows.append(
                (
                    one["workload"],
                    f"{len(plan['mirs'])}",
                    f"{plan['cpu']:.2f}",
                    f"{plan['cpu'] / best:.2f}",
                    *(f"{counts[n]:,}" for n in ("probes", "matches", "rows", "rewritten")),
                    *(f"{plan['expected'][p.name]:,.4g}" for p in PRICES),
                )
            )
    head = ("workload", "MIRs", "CPU s", "×", "probes", "matches", "rows", "rewritten")
    return Grid("plans", (*head, *(p.name for p in PRICES)), tuple(rows))


BENCHMARK = Benchmark("plans", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("ranking", BENCHMARK, None, lambda _: None))

"""Queries joined by several keys: ways to select their PMJoins (PMJoin, Fig. 11).

20 streams with 100 to 1,000 tuples per second and windows of 10 to 100 s arrive at ten random
hosts. A query joins all of them along a random tree; each edge is by one of 3 to 7 keys, and all
keys are used. A stream has a different distribution for each key.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np

from benchmarks.papers.pmjoin.find_partition import Candidate, in_order
from benchmarks.papers.pmjoin.keyed_rates import KeyedRates
from benchmarks.papers.pmjoin.operators import Operator, cost
from benchmarks.papers.pmjoin.partitioners import Group, Partitioner, grouped
from benchmarks.papers.pmjoin.pmjoins import PMJoin, Selection, pmjoins, selected, with_joins
from benchmarks.papers.pmjoin.rates import RatesByValue
from benchmarks.papers.pmjoin.stream_join_opt import simple, stream_join_opt
from benchmarks.pmjoin.draws import Kind, weights

STREAMS, HOSTS, QUERIES, KEYS = 20, 10, 200, (3, 7)
#: Numbers of values of a key; with more values, hardly any tuples are left to send.
RANGES = (10, 100, 1000, 10_000)
#: Number of groups of values per PMJoin.
GROUPS = 10
#: Ways to select PMJoins; *saving* is ours, the others are the paper's.
SELECTIONS = ("heuristic", "random", "alternative", "saving")


def measure(seeds: int) -> list[dict[str, Any]]:
    """Return a row per number of values: means over the queries of ``seeds`` sets of streams."""
    return [_row(seeds, values) for values in RANGES]


def _row(seeds: int, values: int) -> dict[str, Any]:
    runs = [run for seed in range(seeds) for run in _runs(seed, values)]
    possible = [run for run in runs if run["possible"]]
    row: dict[str, Any] = {
        "values": values,
        "queries": len(runs),
        "with_PMJoins": len(possible),
        "possible": round(statistics.fmean(run["possible"] for run in runs), 2),
        "selected": round(statistics.fmean(run["selected"] for run in runs), 2),
    }
    for name in ("simple", "one_plan", *SELECTIONS):
        row[name] = round(statistics.fmean(run[name] for run in runs), 3)
    for name in SELECTIONS:
        ratios = [run[name] / run["one_plan"] for run in possible if run["one_plan"] > 0]
        row[f"{name}_×"] = round(statistics.fmean(ratios), 4) if ratios else 1.0
    return row


def _runs(seed: int, values: int) -> list[dict[str, float]]:
    rng = np.random.default_rng([11, seed])
    kind = Kind(similar=False)
    shares = [[weights(rng, values, kind) for _ in range(STREAMS)] for _ in range(KEYS[1])]
    rates = rng.uniform(100, 1000, STREAMS)
    windows = rates * rng.uniform(10, 100, STREAMS)
    sites = [int(host) for host in rng.integers(HOSTS, size=STREAMS)]
    runs = []
    for number in range(QUERIES):
        of_query = [
            {stream: shares[key][stream] for stream in some}
            for key, some in enumerate(query(np.random.default_rng([11, seed, number])))
        ]
        found = KeyedRates(list(rates), list(windows), of_query)
        runs.append(costs(found, sites, Random(number)))
    return runs


def query(rng: np.random.Generator) -> list[list[int]]:
    """Draw a query: the streams that have each key."""
    keys = int(rng.integers(KEYS[0], KEYS[1] + 1))
    # Each key has at least one edge; the other edges have random keys.
    of_edges = [*range(keys), *(int(key) for key in rng.integers(keys, size=STREAMS - 1 - keys))]
    of_edges = [of_edges[at] for at in rng.permutation(STREAMS - 1)]
    order = [int(stream) for stream in rng.permutation(STREAMS)]
    having: list[set[int]] = [set() for _ in range(keys)]
    for at, key in enumerate(of_edges, 1):
        having[key] |= {order[at], order[int(rng.integers(at))]}
    return [sorted(some) for some in having]


def costs(rates: KeyedRates, sites: Sequence[int], random: Random) -> dict[str, float]:
    """Return the tuples per second that a query sends, for each way to select its PMJoins."""
    plan = stream_join_opt(rates, sites)
    possible = pmjoins(plan, rates, rates.shares, _by_rate)
    heuristic = selected(plan, rates, possible, Selection.INPUT_RATE)
    chosen = {one.candidate.streams for one in heuristic.joins}
    others = [one for one in possible if one.candidate.streams not in chosen]
    # Select by input rate, as in the heuristic, which does not order the candidates that it leaves
    # out.
    alternative = selected(plan, rates, others, Selection.INPUT_RATE)
    shuffled = random.sample(possible, len(possible))
    return {
        "possible": len(possible),
        "selected": len(heuristic.joins),
        "simple": cost(simple(rates, sites), rates),
        "one_plan": cost(plan, rates),
        "heuristic": heuristic.cost,
        "random": _of(plan, rates, possible, in_order(one.candidate for one in shuffled)),
        "alternative": alternative.cost,
        "saving": selected(plan, rates, possible, Selection.SAVING).cost,
    }


def _of(
    plan: Operator, rates: KeyedRates, possible: Sequence[PMJoin], some: Iterable[Candidate]
) -> float:
    chosen = {one.streams for one in some}
    joins = [one for one in possible if one.candidate.streams in chosen]
    return with_joins(plan, rates, joins).cost


def _by_rate(rates: RatesByValue, sites: Sequence[int]) -> list[Group]:
    return grouped(rates, sites, Partitioner.RATE, GROUPS, stream_join_opt)

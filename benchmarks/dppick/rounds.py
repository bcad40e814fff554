"""Runs of dpPick and other policies in turns, and their figures."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from benchmarks.command import spread
from benchmarks.dppick.engine import Orders, Outcome, Policy, Workload, orders_of, run
from benchmarks.papers.dppick.problem import Accounting
from benchmarks.papers.dppick.search import Ablation, Algorithm
from benchmarks.session import WrongResultError
from benchmarks.umjoin.operators.joins import Join

FIXED = Policy("fixed", Algorithm.FIXED)


def rivals(period: int, length: int) -> tuple[Policy, ...]:
    """Return the policies to compare: fixed orders, step-by-step rivals, and both searches."""
    adaptive = (Algorithm.SELECTIVITY, Algorithm.GREEDY, Algorithm.DPPICK, Algorithm.EXACT)
    return FIXED, *(Policy(str(a), a, period=period, length=length) for a in adaptive)


def ablations(period: int, length: int) -> tuple[Policy, ...]:
    """Return dpPick, its ablations, and dpPick with the cost as printed (Eq. 8)."""
    pick, printed = Algorithm.DPPICK, Accounting.PAPER

    def policy(name: str, ablation: Ablation | None, accounting: Accounting) -> Policy:
        return Policy(name, pick, ablation, accounting=accounting, period=period, length=length)

    return (
        policy("dppick", None, Accounting.TUPLE),
        policy("query-cost", Ablation.QUERY_COST, Accounting.TUPLE),
        policy("match-cost", Ablation.MATCH_COST, Accounting.TUPLE),
        Policy("no-smooth", pick, smooth=False, period=period, length=length),
        policy("printed", None, printed),
        policy("printed query-cost", Ablation.QUERY_COST, printed),
        policy("printed match-cost", Ablation.MATCH_COST, printed),
    )


def initial_orders(join: Join, names: Sequence[str]) -> dict[str, Orders]:
    """Map every permutation of the inputs (joined short ``names``) to the orders it stands for."""
    inputs = tuple(join.by_name)
    return {
        "".join(names[inputs.index(one)] for one in permutation): orders_of(join, permutation)
        for permutation in permutations(inputs)
    }


def statics(workload: Workload, first: dict[str, Orders], home: Path) -> dict[str, dict[str, int]]:
    """Return probes and matches of each of the orders if they never change; equal ones run once."""
    found: dict[str, dict[str, int]] = {}
    known: dict[tuple[tuple[str, tuple[str, ...]], ...], dict[str, int]] = {}
    for name, orders in first.items():
        key = tuple(sorted(orders.items()))
        if key not in known:
            outcome = one(workload, FIXED, orders, home, counted=True)
            known[key] = {"probes": outcome.probes, "matches": outcome.matches}
        found[name] = known[key]
    return found


def work(counts: dict[str, Any]) -> int:
    """Return the sum of probes and matches in ``counts``."""
    return int(counts["probes"] + counts["matches"])


def net(figures: dict[str, Any]) -> float:
    """Return the seconds of a run without the seconds of statistics and decisions."""
    return float(
        figures["seconds"]["median"] - figures["counting"]["median"] - figures["deciding"]["median"]
    )


def in_turns(
    workload: Workload,
    policies: Sequence[tuple[Policy, Orders]],
    rounds: int,
    home: Path,
) -> dict[str, dict[str, Any]]:
    """Run all policies, each from its initial orders, in turns; policy -> figures.

    Raises:
        WrongResultError: a run has wrong results, or other counts than the policy's first run.
    """
    runs: dict[str, list[Outcome]] = {policy.name: [] for policy, _ in policies}
    for number in range(rounds):
        # Every second round has the reverse order, so that a slowdown of the machine favours no
        # policy.
        for policy, orders in policies[:: -1 if number % 2 else 1]:
            runs[policy.name].append(one(workload, policy, orders, home, counted=False))
    return {name: _summary(workload, name, found) for name, found in runs.items()}


def one(
    workload: Workload, policy: Policy, orders: Orders, home: Path, *, counted: bool
) -> Outcome:
    """Run one policy, in a new folder."""
    folder = home / "state"
    try:
        return run(workload, policy, orders, folder, counted=counted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _summary(workload: Workload, name: str, found: list[Outcome]) -> dict[str, Any]:
    first = found[0]
    if any((o.steps, o.changes) != (first.steps, first.changes) for o in found):
        raise WrongResultError(f"{workload.name}: {name} does not repeat its counts")
    return {
        "probes": first.probes,
        "matches": first.matches,
        "seconds": spread((o.seconds for o in found), 4),
        "counting": spread((o.counting for o in found), 4),
        "deciding": spread((o.deciding for o in found), 4),
        "reorderings": first.reorderings,
        "first": _first_batches(found),
    }


def _first_batches(found: list[Outcome]) -> list[float]:
    """Return times of first batches with new orders, relative to the mean of their neighbours."""
    ratios = []
    for batch in sorted({number for number, _, _ in found[0].changes}):
        if 0 < batch < len(found[0].batches) - 1:
            some = [
                2 * own / (before + after)
                for before, own, after in (o.batches[batch - 1 : batch + 2] for o in found)
            ]
            ratios.append(round(statistics.median(some), 3))
    return ratios

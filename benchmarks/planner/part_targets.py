"""Part ``targets``: time to the proven optimum, certified gaps, savings, memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch_contract.plans.plan import Objective, Optimizer
from benchmarks.planner.runs import TUPLES, Case, Run, Shape, require_no_worse, summary
from benchmarks.planner.targets import (
    MEBI,
    TARGETS,
    Kind,
    Target,
    memory_verdicts,
    of_kind,
    verdict,
)
from benchmarks.planner.worker import Measured, measure
from benchmarks.report.figures import Spread, tell

#: The optimiser's deadline, as a share of the time that a target allows for a certified gap. The
#: rest is for the pass that is running at the deadline, and for the ruleset.
DEADLINE_SHARE = 0.8
_PLANS = (Optimizer.CLASH, Optimizer.SHARED, Optimizer.INDIVIDUAL)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the part.

    Attributes:
        parallelisms: partitions per store; values above 1 make planning harder.
        limit: time limit of the optimiser in seconds for proven optima.
    """

    seeds: int
    parallelisms: Sequence[int]
    limit: float
    targets: Sequence[Target] = TARGETS


def measure_targets(options: Options) -> dict[str, Any]:
    """Measure every target on plans of one problem."""
    groups: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    for parallelism in options.parallelisms:
        peaks: list[int] = []
        for target, shape in _timed(options.targets):
            certified = target.kind is Kind.CERTIFIED
            deadline = DEADLINE_SHARE * target.within if certified else options.limit
            cases = [
                Case(shape, seed, parallelism=parallelism, deadline=deadline)
                for seed in range(options.seeds)
            ]
            done = measure(cases)
            peaks.append(done.peak_bytes)
            groups.append(_group(target, parallelism, deadline, done))
            verdicts.append(_judge(target, parallelism, done.runs))
            tell(_progress(groups[-1]))
        verdicts += memory_verdicts(options.targets, peaks, parallelism=parallelism, part="targets")
    savings = []
    for target, shape in of_kind(Kind.SAVED):
        if target in options.targets:
            found = _savings(shape, options)
            savings.append(found)
            verdicts += [
                verdict(target, one["probes_saved"], parallelism=1, objective=objective)
                for objective, one in found["objectives"].items()
            ]
    return {"groups": groups, "savings": savings, "verdicts": verdicts}


def _timed(targets: Iterable[Target]) -> list[tuple[Target, Shape]]:
    return [
        (t, t.shape)
        for t in targets
        if t.kind in (Kind.PROVEN, Kind.CERTIFIED) and t.shape is not None
    ]


def _group(target: Target, parallelism: int, deadline: float, done: Measured) -> dict[str, Any]:
    return {
        "kind": str(target.kind),
        "shape": str(target.shape),
        "parallelism": parallelism,
        "deadline": round(deadline, 3),
        "peak_bytes": done.peak_bytes,
        **summary(done.runs),
    }


def _progress(group: dict[str, Any]) -> str:
    return (
        f"{group['kind']} {group['shape']}, parallelism {group['parallelism']}: "
        f"{group['seconds']['median']:.3f} s, CPU {group['cpu']['median']:.3f} s, "
        f"gap {group['gap']['median']:.3%}, proven {group['proven']} of {group['runs']}, "
        f"{group['peak_bytes'] / MEBI:.0f} MiB"
    )


def _judge(target: Target, parallelism: int, runs: Sequence[Run]) -> dict[str, Any]:
    """Judge a target; a run without a proof counts with its time, which is a lower bound."""
    seconds = Spread.of(r.seconds for r in runs).rounded(4)
    proven = sum(r.proven for r in runs)
    cpu = Spread.of(r.cpu for r in runs).rounded(4)
    about = {"parallelism": parallelism, "proven": proven, "runs": len(runs), "cpu": cpu}
    if target.kind is Kind.PROVEN:
        met = target.met(seconds["median"]) and 2 * proven > len(runs)
        return verdict(target, seconds, met=met, **about)
    gap = Spread.of(r.gap for r in runs).rounded(6)
    met = target.met(gap["median"]) and seconds["median"] <= target.within
    return verdict(target, gap, met=met, seconds=seconds, **about)


def _savings(shape: Shape, options: Options) -> dict[str, Any]:
    """Return the savings of joint plans under both objectives, with one partition per store."""
    first = Case(shape, 0, deadline=options.limit)
    cases = [
        replace(first, seed=seed, objective=objective, optimizer=optimizer)
        for seed in range(options.seeds)
        for objective in TUPLES
        for optimizer in _PLANS
    ]
    done = measure(cases)
    found: dict[tuple[Objective, Optimizer], list[Run]] = defaultdict(list)
    for case, run in zip(cases, done.runs, strict=True):
        found[case.objective, case.optimizer].append(run)
    objectives: dict[str, dict[str, Any]] = {}
    for objective in TUPLES:
        clash, shared, alone = (found[objective, optimizer] for optimizer in _PLANS)
        for seed, runs in enumerate(zip(clash, shared, alone, strict=True)):
            require_no_worse(f"{shape}, seed {seed}, objective {objective}", *runs)
        objectives[str(objective)] = {
            "probes_saved": _saved([r.probes for r in clash], [r.probes for r in alone]),
            "cost_saved": _saved([r.cost for r in clash], [r.cost for r in alone]),
            "cost_saved_by_shared": _saved([r.cost for r in shared], [r.cost for r in alone]),
            "proven": sum(r.proven for r in clash),
            **{
                str(optimizer): {
                    "probes": Spread.of(r.probes for r in runs).rounded(2),
                    "cost": Spread.of(r.cost for r in runs).rounded(2),
                }
                for optimizer, runs in zip(_PLANS, (clash, shared, alone), strict=True)
            },
        }
        saved = objectives[str(objective)]["probes_saved"]["median"]
        tell(f"saved {shape}, objective {objective}: {saved:.1%} of the probes")
    queries = Spread.of(r.queries for r in done.runs).rounded(0)
    return {"shape": str(shape), "queries": queries, "objectives": objectives}


def _saved(joint: Iterable[float], alone: Iterable[float]) -> dict[str, float]:
    return Spread.of(1 - j / a for j, a in zip(joint, alone, strict=True)).rounded(4)

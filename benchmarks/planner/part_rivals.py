"""Part ``rivals``: the CLASH paper's integer program and our tight one, on the same problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch_contract.plans.plan import Formulation, Objective, Solver
from anabranch_planner.plans.optimise import JOINT_SHARE
from benchmarks.planner.runs import Case, Run, Shape, require_equal, summary
from benchmarks.planner.targets import TARGETS, Kind, Target, verdict
from benchmarks.planner.worker import measure
from benchmarks.report.figures import Spread, tell

#: Formulations and solvers for every problem. Ratios compare the first two, which use the same
#: solver.
CONTENDERS = (
    (Formulation.PAPER, Solver.HIGHS),
    (Formulation.TIGHT, Solver.HIGHS),
    (Formulation.TIGHT, Solver.BRANCH),
)


@dataclass(frozen=True, slots=True)
class Duel:
    """A shape of problems for both programs; ``seeds``: maximum number of problems, if slow."""

    shape: Shape
    seeds: int | None = None


DUELS = (Duel(Shape(100, 100, 3)), Duel(Shape(100, 10, 4)), Duel(Shape(100, 10, 5), seeds=3))


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the part; ``limit``: time limit of the joint program in seconds."""

    seeds: int
    parallelisms: Sequence[int]
    objectives: Sequence[Objective]
    limit: float
    duels: Sequence[Duel] = DUELS


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of the printed program's time to the tight one's on one problem, in wall and CPU time.

    ``at_least``: whether the printed program reached its time limit without a proof, so that the
    ratio is a lower bound.
    """

    wall: float
    cpu: float
    at_least: bool


def measure_rivals(options: Options) -> dict[str, Any]:
    """Measure every duel under every objective and parallelism."""
    groups: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    for duel in options.duels:
        for parallelism in options.parallelisms:
            for objective in options.objectives:
                group, judged = _duel(duel, parallelism, objective, options)
                groups.append(group)
                verdicts += judged
    return {"groups": groups, "verdicts": verdicts}


def _duel(
    duel: Duel, parallelism: int, objective: Objective, options: Options
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    seeds = options.seeds if duel.seeds is None else min(options.seeds, duel.seeds)
    first = Case(
        duel.shape,
        0,
        parallelism=parallelism,
        objective=objective,
        # The joint program gets only this share of the deadline.
        deadline=options.limit / JOINT_SHARE,
    )
    cases = [
        replace(first, seed=seed, formulation=formulation, solver=solver)
        for seed in range(seeds)
        for formulation, solver in rotated(CONTENDERS, seed)
    ]
    found = dict(zip(cases, measure(cases).runs, strict=True))
    runs = {
        one: [found[c] for c in cases if (c.formulation, c.solver) == one] for one in CONTENDERS
    }
    name = f"{duel.shape}, parallelism {parallelism}, objective {objective}"
    printed, tight, branch = (runs[one] for one in CONTENDERS)
    for seed, same in enumerate(zip(printed, tight, branch, strict=True)):
        require_equal(f"{name}, seed {seed}", same)
    ratios = [r for p, t in zip(printed, tight, strict=True) if (r := ratio(p, t)) is not None]
    against_branch = [
        r for p, t in zip(printed, branch, strict=True) if (r := ratio(p, t)) is not None
    ]
    about = {"parallelism": parallelism, "objective": str(objective)}
    group: dict[str, Any] = {
        "shape": str(duel.shape),
        **about,
        "contenders": [
            {"formulation": str(formulation), "solver": str(solver), **planning(some)}
            for (formulation, solver), some in runs.items()
        ],
        "ratio": _spread(ratios, len(printed)),
        "ratio_to_branch": _spread(against_branch, len(printed)),
    }
    tell(_progress(name, group))
    verdicts = [
        judged
        for target in TARGETS
        if target.shape == duel.shape
        if (judged := _judge(target, ratios, printed, tight, options.limit, about)) is not None
    ]
    return group, verdicts


def ratio(printed: Run, tight: Run) -> Ratio | None:
    """Return the ratio on one problem; None if it is undefined.

    Both runs must exist, and the tight program must have proven its plan.
    """
    if printed.refused or not tight.proven:
        return None
    # Time beyond the program's time limit does not count.
    spent = printed.planning if printed.proven else _program_seconds(printed)
    cpu = printed.cpu if printed.proven else min(printed.cpu, spent)
    return Ratio(spent / tight.planning, cpu / tight.cpu, at_least=not printed.proven)


def _program_seconds(run: Run) -> float:
    return run.phases.get("build", 0.0) + run.phases.get("solve", 0.0)


def _spread(ratios: Sequence[Ratio], runs: int) -> dict[str, Any] | None:
    if not ratios:
        return None
    return {
        "wall": Spread.of(r.wall for r in ratios).rounded(1),
        "cpu": Spread.of(r.cpu for r in ratios).rounded(1),
        "problems": len(ratios),
        "runs": runs,
        "at_least": sum(r.at_least for r in ratios),
    }


def planning(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the summary of runs with the compared time, which excludes the ruleset."""
    found = summary(runs)
    planned = [r.planning for r in runs if not r.refused]
    return found | ({"planning": Spread.of(planned).rounded(4)} if planned else {})


def rotated(items: Iterable[Any], by: int) -> list[Any]:
    """Return ``items`` rotated by ``by``, so that in a series of runs each item comes first in
    turn.

    >>> rotated("abc", 4)
    ['b', 'c', 'a']
    """
    found = list(items)
    start = by % len(found)
    return found[start:] + found[:start]


def _judge(
    target: Target,
    ratios: Sequence[Ratio],
    printed: Sequence[Run],
    tight: Sequence[Run],
    limit: float,
    about: dict[str, Any],
) -> dict[str, Any] | None:
    if target.kind is Kind.FASTER and ratios:
        found = Spread.of(r.wall for r in ratios).rounded(1)
        # Without a ratio, because the tight program proved nothing, the ratio counts as 0.
        missing = [0.0] * (len(tight) - len(ratios))
        met = target.met(Spread.of([*(r.wall for r in ratios), *missing]).median)
        counted = {"problems": len(ratios), "at_least": sum(r.at_least for r in ratios)}
        return verdict(target, found, met=met, **about, **counted, runs=len(tight))
    if target.kind is Kind.ALONE:
        alone = [float(t.proven) for p, t in zip(printed, tight, strict=True) if not p.proven]
        if alone:
            share = sum(alone) / len(alone)
            found = Spread.of([share]).rounded(4)
            met = target.met(share) and limit >= target.within
            tried = replace(target, within=limit)
            return verdict(tried, found, met=met, **about, runs=len(alone))
    return None


def _progress(name: str, group: dict[str, Any]) -> str:
    times = ", ".join(
        f"{one['formulation']} {one['solver']} "
        + (f"{one['planning']['median']:.3f} s" if "planning" in one else "refused")
        + f" ({one['proven']} of {one['runs']} proven)"
        for one in group["contenders"]
    )
    found = group["ratio"]
    faster = "" if found is None else f"; ratio {found['wall']['median']:.1f}"
    return f"{name}: {times}{faster}"

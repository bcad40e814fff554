"""Random small planning problems with limits and a running plan, and checks of their plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from anabranch_contract.plans.plan import Plan, Solver
from anabranch_contract.queries.mirs import Mir, base_mir
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import trails
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.demands import DEFAULT_WIDTH, Limits, Switching
from tests.support.cases.small_problems import RELATIONS, SmallProblem, small_problem
from tests.support.oracles.brute_force import cheapest, insert_price, prices
from tests.support.oracles.exactness import ROUNDING, same


@dataclass(frozen=True)
class Demanded:
    """A planning problem with the limits and the running plan that its plan must respect."""

    problem: SmallProblem
    limits: Limits
    switching: Switching | None

    def __str__(self) -> str:
        limits, switching = self.limits, self.switching
        weight = None if switching is None else switching.weight
        most = f"memory {limits.memory}, copies {limits.copies}, mirs {limits.mirs}"
        return f"{most}, weight {weight}; {self.problem}"


def demanded(key: str) -> Demanded:
    """Return the problem named ``key``, with limits, with a running plan, or with both."""
    rng = Random(f"demands of {key}")
    problem = small_problem(key)
    if rng.random() < 0.5:
        # Only with several partitions is there a choice of copies.
        problem = replace(problem, parallelism=rng.choice([2, 4, 8]))
    kind = rng.choice(["limits", "switching", "both"])
    limits = Limits()
    if kind != "switching":
        widths = {r: rng.choice([8.0, 60.0, 400.0]) for r in RELATIONS if rng.random() < 0.7}
        limits = Limits(
            memory=_memory(rng, problem, widths) if rng.random() < 0.75 else None,
            copies=rng.choice([None, 1, 1, 2]),
            mirs=rng.choice([None, None, 0, 1, 1, 2, 3]),
            widths=widths,
        )
    return Demanded(problem, limits, None if kind == "limits" else _switching(rng, problem, key))


def _memory(rng: Random, problem: SmallProblem, widths: Mapping[str, float]) -> float:
    """Draw a memory limit: sufficient, a little more, or that of the plan without limits."""
    least = least_memory(problem, widths)
    free = bytes_of(plan_of(Demanded(problem, Limits(), None)), problem.model, widths)
    return rng.choice([least, least * rng.uniform(1, 3), rng.uniform(least, free), free])


def _switching(rng: Random, problem: SmallProblem, key: str) -> Switching:
    """Draw a running plan: of the same queries, or of some of them, under other statistics."""
    queries = problem.queries
    if len(queries) > 1 and rng.random() < 0.3:
        queries = queries[1:]
    before = optimise(
        queries,
        small_problem(f"{key} before").statistics,
        Options(objective=problem.objective, parallelism=problem.parallelism, mir=problem.mir),
    )
    return Switching(footprint(before, queries), rng.choice([0.01, 0.1, 0.5, 2.0]))


def least_memory(problem: SmallProblem, widths: Mapping[str, float]) -> float:
    """Return the bytes of one copy of every relation that some query joins."""
    relations = {r.id for q in problem.queries if len(q.labels) > 1 for r in q.relations}
    return sum(_bytes(base_mir(r), problem.model, widths) for r in sorted(relations))


def bytes_of(plan: Plan, model: CostModel, widths: Mapping[str, float]) -> float:
    """Return the bytes of all store copies of ``plan``."""
    mirs = {m.id: m for m in plan.mirs}
    return sum(_bytes(mirs[c.mir], model, widths) for c in plan.copies)


def _bytes(store: Mir, model: CostModel, widths: Mapping[str, float]) -> float:
    return model.cardinality(store) * sum(widths.get(r, DEFAULT_WIDTH) for r in store.relations)


def switching_of(plan: Plan, demands: Demanded) -> float:
    """Return the switching charge of ``plan``, added up over its steps and copies."""
    switching, problem = demands.switching, demands.problem
    if switching is None:
        return 0.0
    mirs = {m.id: m for m in plan.mirs}
    model = problem.model
    prints = footprint(plan, problem.queries)
    priced = {
        (t.start, t.before.id, t.after.id): prices(
            model,
            model.probe(t.before, t.start),
            model.probe(t.after, t.start),
            t.step.target,
        )[0]
        for t in trails(plan, problem.queries).steps.values()
    }
    total = sum(
        priced[key.start, key.before, key.after]
        for key in sorted(prints.steps - switching.running.steps)
    )
    total += sum(
        insert_price(model, mirs[mir]) for mir, _ in prints.copies - switching.running.copies
    )
    return switching.weight * total


def plan_of(demands: Demanded, solver: Solver = Solver.BRANCH) -> Plan:
    """Return the optimiser's plan."""
    problem = demands.problem
    return optimise(
        problem.queries,
        problem.statistics,
        Options(
            objective=problem.objective,
            parallelism=problem.parallelism,
            mir=problem.mir,
            solver=solver,
            limits=demands.limits,
            switching=demands.switching,
        ),
    )


def complaint(key: str, solver: Solver = Solver.BRANCH) -> str:
    """Return the fault of the plan of :func:`demanded` ``key``; empty if there is none."""
    demands = demanded(key)
    what = wrong(demands, plan_of(demands, solver))
    return f"{what} [{key}: {demands}]" if what else ""


def wrong(demands: Demanded, plan: Plan) -> str:
    """Return why ``plan`` is not the optimum under the demands; empty if it is."""
    problem, limits = demands.problem, demands.limits
    queries = problem.queries
    validate_plan(plan, queries)
    again = cost_of(plan, queries, problem.statistics, parallelism=problem.parallelism)
    if not same(plan.cost, again):
        return f"the plan says {plan.cost!r} and costs {again!r}"
    charged = switching_of(plan, demands)
    if not same(plan.switching, charged):
        return f"switching is said to be {plan.switching!r} and is {charged!r}"
    held = bytes_of(plan, problem.model, limits.widths)
    if limits.memory is not None and held > limits.memory * (1 + ROUNDING):
        return f"{held!r} bytes"
    kept: dict[str, int] = {}
    for copy in plan.copies:
        kept[copy.mir] = kept.get(copy.mir, 0) + 1
    if limits.copies is not None and max(kept.values(), default=0) > limits.copies:
        return f"too many copies: {kept}"
    mirs = [mir for mir in plan.mirs if not mir.is_base]
    if limits.mirs is not None and len(mirs) > limits.mirs:
        return f"too many intermediate results: {mirs}"
    total = plan.cost + plan.switching
    if plan.gap > ROUNDING or not same(plan.bound, total):
        return f"not proven: {total!r}, bound {plan.bound!r}, {plan.method}"
    if limits.memory is None:
        best = _cheapest(demands, limits, total)
        return "" if same(total, best) else f"brute force {best!r}, optimiser {total!r}"
    # Limits hold up to rounding errors, so the optimum is between the optima of two limits.
    loose = _cheapest(demands, replace(limits, memory=limits.memory * (1 + 2 * ROUNDING)), total)
    if same(total, loose):
        return ""
    strict = _cheapest(demands, limits, total)
    if total < strict or same(total, strict):
        return ""
    return f"brute force at least {loose!r}, optimiser {total!r}"


def _cheapest(demands: Demanded, limits: Limits, at_most: float) -> float:
    return cheapest(
        demands.problem.queries,
        demands.problem.model,
        mir=demands.problem.mir,
        at_most=at_most,
        limits=limits,
        switching=demands.switching,
    )

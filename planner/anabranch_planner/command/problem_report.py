"""Report on the planning of a problem: JSON data for ``--json``, and key figures as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch_contract.plans.plan import Plan, ProbeOrder
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.mirs import sub_join
from anabranch_planner.command.problem_file import ProblemFile
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.cost.uncertainty import CostRange, cost_range
from anabranch_planner.explain.explain import mir_label, store_labels
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.look_ahead import LookAheadFilter, questions


@dataclass(frozen=True, slots=True)
class Planned:
    """The joint plan of a problem's queries, and two plans without joint planning as a comparison.

    Attributes:
        plan: the requested joint plan.
        individual: one optimal plan per query, each run alone.
        shared: the same plans, where equal steps and store copies run once for all queries.
        ahead: the look-ahead filters, if the command requested them.
        spent: phase (``build``, ``solve``) -> seconds that ``plan`` took in it.
        seconds: seconds that planning took in all.
    """

    problem: ProblemFile
    plan: Plan
    individual: Plan
    shared: Plan
    ahead: tuple[LookAheadFilter, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def document(planned: Planned) -> dict[str, Any]:
    """The planner's report as JSON; only fields named ``…_ms`` depend on the machine."""
    plan = planned.plan
    assumed, contradictions = doubts(planned.problem, plan)
    labels = store_labels(plan)
    names = {str(m.id): mir_label(m.members) for m in plan.mirs}
    answers: dict[str, list[ProbeOrder]] = {str(q): [] for q in plan.queries}
    kept: dict[tuple[str, str], list[ProbeOrder]] = {}
    for order in plan.orders:
        if order.maintains:
            kept.setdefault((order.owner, order.goal), []).append(order)
        else:
            answers[order.goal].append(order)
    texts = {
        value: text
        for known in planned.problem.statistics.values.values()
        for value, text in zip(known.hashes, known.texts, strict=True)
    }

    def stores(order: ProbeOrder) -> list[str]:
        return [labels[step.target, step.partition] for step in order.steps]

    def by_alias(query: JoinQuery) -> dict[str, list[str]]:
        found = {order.start: stores(order) for order in answers[query.id] if not order.substream}
        return {member.alias: found[member.label] for member in query.members}

    spread = _spread(planned.problem, plan)
    return {
        "cost": plan.cost,
        "individual_cost": planned.individual.cost,
        "shared_cost": planned.shared.cost,
        "bound": plan.bound,
        "gap": plan.gap,
        "candidates": plan.candidates,
        "variables": plan.variables,
        "constraints": plan.constraints,
        "build_ms": _ms(planned.spent.get("build", 0.0)),
        "solve_ms": _ms(planned.spent.get("solve", 0.0)),
        "total_ms": _ms(planned.seconds),
        "method": plan.method,
        "individual_method": planned.individual.method,
        "shared_method": planned.shared.method,
        "optimizer": plan.optimizer.value,
        "objective": plan.objective.value,
        "queries": {
            str(query.id): by_alias(query)
            for query in sorted(planned.problem.queries, key=lambda q: q.id)
        },
        "mirs": [
            {
                "store": names[goal],
                "id": goal,
                "owner": owner,
                "orders": {str(o.start): stores(o) for o in orders if not o.substream},
            }
            for (owner, goal), orders in kept.items()
        ],
        "substreams": [
            {
                "start": function.start,
                "attribute": function.attribute,
                "values": [texts[value] for value in group],
                "orders": {
                    order.goal: stores(order)
                    for order in plan.orders
                    if (order.start, order.substream) == (function.start, number)
                },
            }
            for function in plan.substreams
            for number, group in enumerate(function.groups, function.others)
        ],
        "ahead": [
            {
                "edge": one.edge,
                "asks": one.asked.mir,
                "key": [str(part.probe) for part in one.asked.key],
                "share": one.share,
                "saved_seconds": one.saved,
                "price_seconds": one.price,
            }
            for one in planned.ahead
        ],
        "copies": [
            {
                "store": labels[copy.mir, copy.partition],
                "partition": None if copy.partition is None else str(copy.partition),
                "owner": copy.owner,
                "insert_cost": copy.insert_cost,
            }
            for copy in plan.copies
        ],
        "cost_range": {"low": spread.low, "high": spread.high},
        "assumed": list(assumed),
        "contradictions": list(contradictions),
    }


def facts(planned: Planned) -> dict[str, str]:
    """Key figures of a planned problem; ``explain_text`` shows the plan itself."""
    plan = planned.plan
    spread = _spread(planned.problem, plan)
    return {
        "queries": str(len(plan.queries)),
        "cost": f"{plan.cost:.10g}, at least {plan.bound:.10g} (gap {plan.gap:.2%})",
        "cost range": f"{spread.low:.10g} to {spread.high:.10g} if assumed statistics are wrong",
        "individual plans": _beside(planned.individual, plan),
        "individual, equal steps shared": _beside(planned.shared, plan),
        "problem": f"{plan.candidates} candidates, {plan.variables} variables,"
        f" {plan.constraints} constraints",
        "substreams": _substreams(plan),
        "look-ahead filters": _filters(planned.ahead),
        "method": plan.method,
        "time": f"{_ms(planned.seconds):.1f} ms, of which {_ms(planned.spent.get('build', 0)):.1f}"
        f" building and {_ms(planned.spent.get('solve', 0)):.1f} solving",
    }


def _substreams(plan: Plan) -> str:
    """Text of the report: relations split into substreams, each with the splitting attribute."""
    found = (f"{f.start} by {f.attribute} ({f.count} substreams)" for f in plan.substreams)
    return ", ".join(found) or "none"


def ahead_of(problem: ProblemFile, plan: Plan) -> tuple[LookAheadFilter, ...]:
    """Look-ahead filters that save more than they cost under the rules of ``plan``."""
    rules = compile_ruleset(
        plan, problem.queries, (), epoch=0, parallelism=problem.parallelism, sinks={}
    )
    model = _model(problem, plan, plan.substreams)
    return questions(rules, problem.queries, model, problem.statistics.constants)


def _model(problem: ProblemFile, plan: Plan, substreams: tuple[Substreams, ...] = ()) -> CostModel:
    """The cost model for the statistics of a problem file, to report on ``plan``."""
    return CostModel(
        problem.statistics,
        objective=plan.objective,
        parallelism=problem.parallelism,
        partitioning=problem.partitioning,
        bounds=LoosestBounds(problem.queries),
        substreams=substreams,
    )


def _filters(ahead: tuple[LookAheadFilter, ...]) -> str:
    """Text of the report: look-ahead filters with store, key, probe, and fraction that passes."""
    found = (
        f"{one.asked.mir} by {', '.join(str(k.probe) for k in one.asked.key)}"
        f" before {one.edge} ({one.share:.0%} pass)"
        for one in ahead
    )
    return "; ".join(found) or "none"


def doubts(problem: ProblemFile, plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences of the report: assumptions for missing statistics, corrections of others."""
    model = _model(problem, plan)
    for query in problem.queries:
        model.cardinality(sub_join(query, frozenset(query.labels)))
    assumed = sorted({*problem.assumed, *model.assumed})
    return tuple(assumed), model.contradictions


def _spread(problem: ProblemFile, plan: Plan) -> CostRange:
    """The range of the plan's cost for the report, if assumed statistics are wrong."""
    return cost_range(
        plan,
        problem.queries,
        problem.statistics,
        parallelism=problem.parallelism,
        partitioning=problem.partitioning,
    )


def _beside(other: Plan, plan: Plan) -> str:
    """Cost of another plan as text for the report, with the share that ``plan`` saves."""
    saved = f" ({1 - plan.cost / other.cost:.1%} saved)" if other.cost > plan.cost else ""
    return f"{other.cost:.10g}{saved}"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)

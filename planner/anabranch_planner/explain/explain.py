"""Explanation of a plan: first as data, then as text and DOT from the same data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.parts import PlanPart, divide
from anabranch_planner.cost.steps import Prefix


def mir_label(members: Sequence[Label]) -> str:
    """Readable name of a store's content in explanations: the joined aliases.

    >>> mir_label(("S", "T"))
    'S⋈T'
    """
    return "⋈".join(members)


def store_labels(plan: Plan) -> dict[tuple[MirId, AttrRef | None], str]:
    """Readable names of a plan's store copies, such as ``S[b]`` or ``S⋈T[c]``, for explanations.

    The attribute is qualified if two copies of one store would otherwise have equal names.
    """
    members = {m.id: m.members for m in plan.mirs}
    names: dict[tuple[MirId, AttrRef | None], str] = {}
    rivals: dict[tuple[MirId, str], set[AttrRef]] = {}
    for copy in plan.copies:
        if copy.partition is not None:
            rivals.setdefault((copy.mir, copy.partition.attribute), set()).add(copy.partition)
    for store, attribute in dict.fromkeys((c.mir, c.partition) for c in plan.copies):
        text = mir_label(members[store])
        if attribute is not None:
            alike = rivals[store, attribute.attribute]
            text += f"[{attribute if len(alike) > 1 else attribute.attribute}]"
        names[store, attribute] = text
    return names


def explain(
    plan: Plan, queries: Sequence[JoinQuery], parts: Sequence[PlanPart] | None = None
) -> dict[str, Any]:
    """The plan as a JSON document.

    ``steps`` lists every probe step once, even if several orders share it: ``shared_by`` names
    every goal that uses the step (a single name: not shared), ``parent`` is the ``id`` of the
    preceding step (null after the arriving tuple). ``queries`` and ``maintenance`` list probe
    orders with the ids of their steps. ``substream`` is the index of the arriving tuples'
    substream. ``stores`` lists the copies, and ``totals`` has the sums.

    Args:
        parts: the plan's parts (:func:`~anabranch_planner.cost.parts.divide`), which cache their
            explanations; None: divide the plan here.
    """
    parts = divide(plan, queries) if parts is None else parts
    found = [part.once("explained", (), partial(_explain_part, part)) for part in parts]
    orders = {query: orders for one in found for query, orders in one.queries.items()}
    kept = {goal: document for one in found for goal, document in one.maintenance.items()}
    goals = dict.fromkeys((o.owner, o.goal) for o in plan.orders if o.maintains)
    stores: dict[_Store, dict[str, Any]] = {}
    for one in found:
        for store, document in one.stores.items():
            known = stores.get(store)
            if known is not None:
                used = sorted({*known["used_by"], *document["used_by"]})
                document = {**document, "used_by": used}
            stores[store] = document
    return {
        "optimizer": plan.optimizer.value,
        "objective": plan.objective.value,
        "method": plan.method,
        "cost": plan.cost,
        "bound": plan.bound,
        "gap": plan.gap,
        "problem": {
            "candidates": plan.candidates,
            "variables": plan.variables,
            "constraints": plan.constraints,
        },
        "queries": [{"id": query, "orders": orders.get(query, [])} for query in plan.queries],
        "maintenance": [kept[goal] for goal in goals],
        "steps": [step for one in found for step in one.steps],
        "stores": [stores[c.owner, c.mir, c.partition] for c in plan.copies],
        "totals": {
            "probe_cost": math.fsum(one.probe_cost for one in found),
            "insert_cost": math.fsum(c.insert_cost for c in plan.copies),
            "steps": sum(len(one.steps) for one in found),
            "shared_steps": sum(one.shared_steps for one in found),
            "stores": len(plan.copies),
            "intermediate_results": len(kept),
        },
    }


#: The identity of a store copy: owner, store and partition attribute.
_Store = tuple[str, "MirId", "AttrRef | None"]


@dataclass(frozen=True, slots=True)
class _Explained:
    """JSON sections of :func:`explain` for one part of a plan."""

    queries: dict[str, list[dict[str, Any]]]
    maintenance: dict[tuple[str, str], dict[str, Any]]
    stores: dict[_Store, dict[str, Any]]
    steps: list[dict[str, Any]]
    probe_cost: float
    shared_steps: int


def _explain_part(part: PlanPart) -> _Explained:
    plan, found = part.plan, part.trails
    labels = store_labels(plan)
    goal_names = {str(m.id): mir_label(m.members) for m in plan.mirs}
    users: dict[Prefix, dict[str, None]] = {}
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        for prefix in prefixes:
            name = goal_names[order.goal] if order.maintains else order.goal
            users.setdefault(prefix, {})[name] = None
    numbers = {prefix: number for number, prefix in enumerate(found.steps, part.first)}
    steps: dict[Prefix, dict[str, Any]] = {}
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        for at, (prefix, step) in enumerate(zip(prefixes, order.steps, strict=True)):
            if prefix not in steps:
                steps[prefix] = {
                    "id": numbers[prefix],
                    "parent": numbers[prefixes[at - 1]] if at else None,
                    "store": labels[step.target, step.partition],
                    "mir": step.target,
                    "members": list(step.members),
                    "partition": str(step.partition) if step.partition else None,
                    "broadcast": step.broadcast,
                    "cost": step.cost,
                    "cardinality": step.cardinality,
                    "shared_by": list(users[prefix]),
                }
    queries: dict[str, list[dict[str, Any]]] = {}
    kept: dict[tuple[str, str], dict[str, Any]] = {}
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        if order.maintains:
            document = kept.setdefault(
                (order.owner, order.goal),
                {
                    "mir": order.goal,
                    "label": goal_names[order.goal],
                    "owner": order.owner,
                    "orders": [],
                },
            )
            orders = document["orders"]
        else:
            orders = queries.setdefault(order.goal, [])
        orders.append(
            {
                "start": order.start,
                "substream": order.substream,
                "owner": order.owner,
                "steps": [numbers[prefix] for prefix in prefixes],
            }
        )
    probed = _store_users(plan, goal_names)
    return _Explained(
        queries,
        kept,
        {
            (c.owner, c.mir, c.partition): {
                "label": labels[c.mir, c.partition],
                "mir": c.mir,
                "owner": c.owner,
                "partition": str(c.partition) if c.partition else None,
                "insert_cost": c.insert_cost,
                "used_by": sorted(probed.get((c.owner, c.mir, c.partition), ())),
            }
            for c in plan.copies
        },
        [steps[prefix] for prefix in found.steps],
        sum(t.step.cost for t in found.steps.values()),
        sum(len(names) > 1 for names in users.values()),
    )


def _store_users(
    plan: Plan, names: dict[str, str]
) -> dict[tuple[str, MirId, AttrRef | None], set[str]]:
    """Store copy -> the queries and intermediate results whose probe orders probe it."""
    users: dict[tuple[str, MirId, AttrRef | None], set[str]] = {}
    for order in plan.orders:
        name = names[order.goal] if order.maintains else order.goal
        for step in order.steps:
            users.setdefault((order.owner, step.target, step.partition), set()).add(name)
    return users


def explain_text(plan: Plan, queries: Sequence[JoinQuery]) -> str:
    """:func:`explain` as text for people; ``*`` marks a broadcast, ``=`` a shared step."""
    doc = explain(plan, queries)
    totals = doc["totals"]
    lines = [
        f"{doc['optimizer']} ({doc['objective']} objective): cost {doc['cost']:.10g}, "
        f"gap {doc['gap']:.2%}, by {doc['method']}",
        f"probes {totals['probe_cost']:.10g}, inserts {totals['insert_cost']:.10g}; "
        f"{totals['steps']} steps, {totals['shared_steps']} of them shared; "
        f"{totals['stores']} stores",
    ]
    steps = {step["id"]: step for step in doc["steps"]}
    for query in doc["queries"]:
        lines += ["", f"query {query['id']}", *_order_lines(query["id"], query["orders"], steps)]
    for kept in doc["maintenance"]:
        owner = f" for {kept['owner']}" if kept["owner"] else ""
        found = _order_lines(kept["label"], kept["orders"], steps)
        lines += ["", f"keep {kept['label']}{owner}", *found]
    lines += ["", "stores"]
    for store in doc["stores"]:
        owner = f" for {store['owner']}" if store["owner"] else ""
        used = ", ".join(store["used_by"]) or "nothing yet"
        lines.append(
            f"  {store['label']}{owner}: inserts {store['insert_cost']:.10g}, probed by {used}"
        )
    return "\n".join(lines) + "\n"


def _order_lines(
    goal: str, orders: list[dict[str, Any]], steps: Mapping[int, dict[str, Any]]
) -> list[str]:
    lines = []
    for order in orders:
        taken = [steps[number] for number in order["steps"]]
        stores = [s["store"] + ("*" if s["broadcast"] else "") for s in taken]
        lines.append(f"  ⟨{', '.join([order['start'], *stores])}⟩")
        for step, name in zip(taken, stores, strict=True):
            others = [u for u in step["shared_by"] if u != goal]
            shared = f"  = {', '.join(others)}" if others else ""
            lines.append(
                f"    {name}: cost {step['cost']:.10g}, then {step['cardinality']:.10g}{shared}"
            )
    return lines

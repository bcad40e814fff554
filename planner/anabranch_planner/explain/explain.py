"""Explaining a plan: data first, then text and DOT from the same data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch_planner.cost.steps import trails

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_contract.plans.plan import Plan
    from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
    from anabranch_contract.queries.mirs import MirId
    from anabranch_planner.cost.steps import Prefix


def mir_label(members: Sequence[Label]) -> str:
    """A readable name of a store's content.

    >>> mir_label(("S", "T"))
    'S⋈T'
    """
    return "⋈".join(members)


def store_labels(plan: Plan) -> dict[tuple[MirId, AttrRef | None], str]:
    """Readable names of the plan's store copies, such as ``S[b]`` or ``S⋈T[c]``.

    The attribute is qualified where two copies of one store would read the same.
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


def explain(plan: Plan, queries: Sequence[JoinQuery]) -> dict[str, Any]:
    """The plan as a JSON document.

    ``queries`` and ``maintenance`` list orders with their steps; ``shared_by`` of a step names
    every goal that uses that step (one is not shared); a step's ``id`` is the same wherever it
    is the same step, and ``parent`` is the step before it (null after the arriving tuple).
    ``stores`` lists the copies, ``totals`` adds up.
    """
    labels = store_labels(plan)
    goal_names = {str(m.id): mir_label(m.members) for m in plan.mirs}
    found = trails(plan, queries)
    numbers = {prefix: number for number, prefix in enumerate(found.steps)}
    users: dict[Prefix, list[str]] = {}
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        for prefix in prefixes:
            name = goal_names[order.goal] if order.maintains else order.goal
            if name not in users.setdefault(prefix, []):
                users[prefix].append(name)

    def order_doc(index: int) -> dict[str, Any]:
        order = plan.orders[index]
        steps: list[dict[str, Any]] = []
        for prefix, step in zip(found.orders[index], order.steps, strict=True):
            steps.append(
                {
                    "id": numbers[prefix],
                    "parent": steps[-1]["id"] if steps else None,
                    "store": labels[step.target, step.partition],
                    "mir": step.target,
                    "members": list(step.members),
                    "partition": str(step.partition) if step.partition else None,
                    "broadcast": step.broadcast,
                    "cost": step.cost,
                    "cardinality": step.cardinality,
                    "shared_by": users[prefix],
                }
            )
        return {"start": order.start, "owner": order.owner, "steps": steps}

    own: dict[str, list[int]] = {}
    kept: dict[tuple[str, str], list[int]] = {}
    for index, order in enumerate(plan.orders):
        if order.maintains:
            kept.setdefault((order.owner, order.goal), []).append(index)
        else:
            own.setdefault(order.goal, []).append(index)
    probed = _store_users(plan, goal_names)
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
        "queries": [
            {"id": query, "orders": [order_doc(index) for index in own.get(query, ())]}
            for query in plan.queries
        ],
        "maintenance": [
            {
                "mir": goal,
                "label": goal_names[goal],
                "owner": owner,
                "orders": [order_doc(index) for index in orders],
            }
            for (owner, goal), orders in kept.items()
        ],
        "stores": [
            {
                "label": labels[c.mir, c.partition],
                "mir": c.mir,
                "owner": c.owner,
                "partition": str(c.partition) if c.partition else None,
                "insert_cost": c.insert_cost,
                "used_by": sorted(probed.get((c.owner, c.mir, c.partition), ())),
            }
            for c in plan.copies
        ],
        "totals": {
            "probe_cost": sum(t.step.cost for t in found.steps.values()),
            "insert_cost": sum(c.insert_cost for c in plan.copies),
            "steps": len(found.steps),
            "shared_steps": sum(len(names) > 1 for names in users.values()),
            "stores": len(plan.copies),
            "intermediate_results": len(kept),
        },
    }


def _store_users(
    plan: Plan, names: dict[str, str]
) -> dict[tuple[str, MirId, AttrRef | None], set[str]]:
    """The goals whose orders probe each copy."""
    users: dict[tuple[str, MirId, AttrRef | None], set[str]] = {}
    for order in plan.orders:
        name = names[order.goal] if order.maintains else order.goal
        for step in order.steps:
            users.setdefault((order.owner, step.target, step.partition), set()).add(name)
    return users


def explain_text(plan: Plan, queries: Sequence[JoinQuery]) -> str:
    """:func:`explain` for people. ``*`` marks a broadcast, ``=`` a step that is shared."""
    doc = explain(plan, queries)
    totals = doc["totals"]
    lines = [
        f"{doc['optimizer']} ({doc['objective']} objective): cost {doc['cost']:.10g}, "
        f"gap {doc['gap']:.2%}, by {doc['method']}",
        f"probes {totals['probe_cost']:.10g}, inserts {totals['insert_cost']:.10g}; "
        f"{totals['steps']} steps, {totals['shared_steps']} of them shared; "
        f"{totals['stores']} stores",
    ]
    for query in doc["queries"]:
        lines += ["", f"query {query['id']}", *_order_lines(query["id"], query["orders"])]
    for kept in doc["maintenance"]:
        owner = f" for {kept['owner']}" if kept["owner"] else ""
        lines += ["", f"keep {kept['label']}{owner}", *_order_lines(kept["label"], kept["orders"])]
    lines += ["", "stores"]
    for store in doc["stores"]:
        owner = f" for {store['owner']}" if store["owner"] else ""
        used = ", ".join(store["used_by"]) or "nothing yet"
        lines.append(
            f"  {store['label']}{owner}: inserts {store['insert_cost']:.10g}, probed by {used}"
        )
    return "\n".join(lines) + "\n"


def _order_lines(goal: str, orders: list[dict[str, Any]]) -> list[str]:
    lines = []
    for order in orders:
        stores = [s["store"] + ("*" if s["broadcast"] else "") for s in order["steps"]]
        lines.append(f"  ⟨{', '.join([order['start'], *stores])}⟩")
        for step, name in zip(order["steps"], stores, strict=True):
            others = [u for u in step["shared_by"] if u != goal]
            shared = f"  = {', '.join(others)}" if others else ""
            lines.append(
                f"    {name}: cost {step['cost']:.10g}, then {step['cardinality']:.10g}{shared}"
            )
    return lines

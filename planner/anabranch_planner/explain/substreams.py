"""Explanation of substreams (a relation's tuples split by key value) and their probe orders.

The result is plain data for the REST API, the command line and the console.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch_contract.plans.plan import Plan, ProbeOrder
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import base_mir, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import trails
from anabranch_planner.cost.validate import step_price
from anabranch_planner.cost.values import Column, joined_columns
from anabranch_planner.explain.explain import store_labels


def explain_substreams(
    plan: Plan, queries: Sequence[JoinQuery], model: CostModel
) -> list[dict[str, Any]]:
    """The substreams of each split relation as JSON documents, sorted by relation.

    Fields per substream: ``values`` (text and share of the arriving tuples), ``others`` (whether it
    contains all values that no substream lists), ``nulls`` (the share of NULL in the arriving
    tuples, if it contains NULL), ``share`` of the arriving tuples, ``cost`` of its steps per unit
    of time, ``otherwise`` (the cost if its tuples took the first substream's orders), the stores of
    its order per query, ``same_as`` (the first substream with the same orders, possibly itself),
    and ``aside`` (whether intermediate results may exclude its values).

    Args:
        model: the cost model of ``plan``, with the same substreams.
    """
    alike = _costs(_as_first(plan), queries, model)
    apart = _costs(plan, queries, model)
    return [_explained_split(one, plan, queries, model, apart, alike) for one in plan.substreams]


def _explained_split(
    function: Substreams,
    plan: Plan,
    queries: Sequence[JoinQuery],
    model: CostModel,
    apart: Mapping[tuple[Label, int], float],
    alike: Mapping[tuple[Label, int], float],
) -> dict[str, Any]:
    start, labels = function.start, store_labels(plan)
    own, columns = _columns(function, queries)
    texts, shares = model.values.texts(columns), model.values.arriving(own)
    arriving = base_mir(own[0])
    whole = model.probe_of(arriving, start, ())

    def order(one: ProbeOrder) -> list[str]:
        return [labels[step.target, step.partition] for step in one.steps]

    taken = [
        [(o.owner, o.goal, o.maintains, _steps(o)) for o in plan.orders if _is(o, start, number)]
        for number in range(function.count)
    ]

    def substream(number: int) -> dict[str, Any]:
        listed = number - function.others
        group = function.groups[listed] if listed >= 0 else ()
        values = [{"value": texts.get(v, ""), "share": shares.get(v, 0.0)} for v in group]
        return {
            "number": number,
            "others": listed < 0,
            "nulls": model.values.nulls([own], first_arrives=True) if number == 0 else 0.0,
            "values": sorted(values, key=lambda value: (-value["share"], value["value"])),
            "share": model.probe(arriving, start, number) / whole if whole else 0.0,
            "cost": apart.get((start, number), 0.0),
            "otherwise": alike.get((start, number), 0.0),
            "orders": {
                one.goal: order(one)
                for one in plan.orders
                if not one.maintains and _is(one, start, number)
            },
            "same_as": taken.index(taken[number]),
            "aside": number in function.aside,
        }

    return {
        "start": start,
        "attribute": function.attribute,
        "type": function.type,
        "others": function.others,
        # Write hashes as texts, because many JSON readers do not keep all 64 bits of a number.
        "groups": [[str(value) for value in group] for group in function.groups],
        "substreams": [substream(number) for number in range(function.count)],
    }


def _is(order: ProbeOrder, start: Label, number: int) -> bool:
    return (order.start, order.substream) == (start, number)


def _steps(order: ProbeOrder) -> list[tuple[object, ...]]:
    """The probe steps of ``order`` without costs, to compare the orders of substreams."""
    return [(step.target, step.members, step.partition) for step in order.steps]


def _columns(function: Substreams, queries: Sequence[JoinQuery]) -> tuple[Column, list[Column]]:
    """The column that defines the substreams, and all columns that a query equates with it."""
    found: dict[Column, None] = {}
    for query in queries:
        if function.start in query.labels:
            whole = sub_join(query, frozenset(query.labels))
            key = AttrRef(function.start, function.attribute)
            found.update(dict.fromkeys(joined_columns(whole, key)))
    columns = list(found)
    return columns[0], columns


def _as_first(plan: Plan) -> Plan:
    """``plan`` without substreams: all tuples of a relation take its first substream's orders."""
    first = {(o.owner, o.goal, o.maintains, o.start): o for o in plan.orders if not o.substream}
    orders = (
        replace(first[o.owner, o.goal, o.maintains, o.start], substream=o.substream)
        for o in plan.orders
    )
    return replace(plan, orders=tuple(orders))


def _costs(
    plan: Plan, queries: Sequence[JoinQuery], model: CostModel
) -> dict[tuple[Label, int], float]:
    """(starting alias, substream) -> cost of its probe steps per unit of time, without repeats."""
    mirs, found = {m.id: m for m in plan.mirs}, dict[tuple[Label, int], float]()
    for trail in trails(plan, queries).steps.values():
        key = trail.start, trail.substream
        found[key] = found.get(key, 0.0) + step_price(trail, mirs, model)
    return found

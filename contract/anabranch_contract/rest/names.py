"""Readable names of relations and intermediate results, in place of the planner's ids.

Records of epochs are immutable and contain ids, while readable names depend on the aliases in the
present queries. So the service or the command line computes names when it displays a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from anabranch_contract.queries.outer_joins import is_branch, part_number, registered
from anabranch_contract.rest.normalised import NormalisedInfo

#: Pattern of the partition attribute at the end of a store's label.
_PARTITION = re.compile(r"\[(\w+)\]$")


def relation_names(meanings: Iterable[NormalisedInfo]) -> dict[str, str]:
    """Map each relation to a readable name: its stream, and its local filter if any."""
    return {
        relation: f"{stream} where {condition}" if condition else stream
        for relation, (stream, condition) in relation_filters(meanings).items()
    }


def relation_filters(meanings: Iterable[NormalisedInfo]) -> dict[str, tuple[str, str]]:
    """Map each relation to its stream and its local filter; empty: all tuples."""
    found: dict[str, tuple[str, str]] = {}
    for meaning in meanings:
        for alias in meaning.aliases:
            if alias.relation not in found:
                parts = (bare(part.replace(f"{alias.alias}.", "")) for part in alias.filter)
                found[alias.relation] = alias.stream, " AND ".join(parts)
    return found


def readable(label: str, names: Mapping[str, str]) -> str:
    """Replace the planner's ids in the label of a step or store by readable names.

    >>> readable("from R[1a]: R[1a] probes S", {"R[1a]": "R where x > 1", "S": "S"})
    'from (R where x > 1): (R where x > 1) probes S'
    >>> readable("R[1a]⋈S[k]", {"R[1a]": "R where x > 1", "S": "S"})
    '(R where x > 1) ⋈ S by k'
    """
    replaced = {name: text for name, text in names.items() if name != text}
    if replaced:
        longest = sorted(replaced, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest))
        parts = re.split(f"({pattern})", label)
        tail = _PARTITION.sub(r" by \1", parts[-1])
        label = "".join(f"({replaced[p]})" if p in replaced else p for p in (*parts[:-1], tail))
    else:
        label = _PARTITION.sub(r" by \1", label)
    return label.replace("⋈", " ⋈ ")


def readable_explain(explain: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Replace the planner's ids in an explanation by readable names, except ids of steps."""
    goals = {query["id"] for query in explain.get("queries", ())}

    def goal(name: str) -> str:
        return readable(name, names) if name not in goals else _goal(name)

    def orders(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**order, "start": readable(order["start"], names), "owner": _goal(order["owner"])}
            for order in found
        ]

    def labelled(kind: str) -> list[dict[str, Any]]:
        return [{**one, "label": readable(one["label"], names)} for one in explain.get(kind, ())]

    divided = [
        {**one, "start": readable(one["start"], names)} for one in explain.get("substreams", ())
    ]
    dealt: dict[str, Any] = {}
    if "look_ahead" in explain:
        dealt["look_ahead"] = [
            {**one, **{name: readable(one[name], names) for name in ("start", "probe", "asked")}}
            for one in explain["look_ahead"]
        ]
    if "hot_keys" in explain:
        values = [
            {**one, "attribute": readable(one["attribute"], names)}
            for one in explain["hot_keys"]["values"]
        ]
        dealt["hot_keys"] = {**explain["hot_keys"], "values": values}
    return {
        **explain,
        **dealt,
        "substreams": divided,
        "queries": [
            {**query, "id": _goal(query["id"]), "orders": orders(query["orders"])}
            for query in explain.get("queries", ())
        ],
        "maintenance": [
            {**kept, "orders": orders(kept["orders"])} for kept in labelled("maintenance")
        ],
        "steps": [
            {
                **step,
                "store": readable(step["store"], names),
                "shared_by": [goal(name) for name in step["shared_by"]],
            }
            for step in explain.get("steps", ())
        ],
        "stores": labelled("stores"),
        "backfill": labelled("backfill"),
    }


def _goal(name: str) -> str:
    """Return a readable name of a planned join: a query, or a part of its outer join or union.

    >>> _goal("unpaid+left"), _goal("unpaid"), _goal("named+2"), _goal("all+union2")
    ('unpaid, left rows', 'unpaid', 'named, look-up 2', 'all, branch 2')
    """
    number = part_number(name)
    if number == 1:
        return name
    what = "branch" if is_branch(name) else "look-up"
    return f"{registered(name)}, {f'{what} {number}' if number else 'left rows'}"


def bare(text: str) -> str:
    """Return the text of a condition without the parentheses that enclose all of it.

    >>> bare("(x > 10)"), bare("(a) OR (b)")
    ('x > 10', '(a) OR (b)')
    """
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if at and at == len(text) - 1 else text
    return text

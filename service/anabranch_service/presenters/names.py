"""Names of relations and intermediate results for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch_contract.plans.ruleset import Ruleset
    from anabranch_contract.queries.joins import RelationId
    from anabranch_contract.rest.normalised import NormalisedInfo


#: The attribute that a store is partitioned by, at the end of its label.
_PARTITION = re.compile(r"\[(\w+)\]$")


def relation_names(meanings: Iterable[NormalisedInfo]) -> dict[str, str]:
    """Relation -> its stream, with the local filter if it has one."""
    found: dict[str, str] = {}
    for meaning in meanings:
        for alias in meaning.aliases:
            condition = " AND ".join(
                _bare(part.replace(f"{alias.alias}.", "")) for part in alias.filter
            )
            name = f"{alias.stream} where {condition}" if condition else alias.stream
            found.setdefault(alias.relation, name)
    return found


def readable(label: str, names: Mapping[str, str]) -> str:
    """The label of a step or store with names for people in place of the planner's ids.

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


class Describer:
    """Names for people: never the ids that the planner makes."""

    def __init__(self, ruleset: Ruleset, meanings: Mapping[str, NormalisedInfo]) -> None:
        self._stream = {r.id: str(r.stream) for r in ruleset.relations}
        self._filter: dict[str, str] = {}
        for meaning in meanings.values():
            for alias in meaning.aliases:
                parts = (_bare(part.replace(f"{alias.alias}.", "")) for part in alias.filter)
                self._filter.setdefault(alias.relation, " AND ".join(parts))
        self._members = {
            str(s.mir): [(str(self._stream[r]), self._condition(r)) for r in s.relations]
            for s in ruleset.stores
        }

    def of(self, kind: str, name: str) -> tuple[str, str]:
        """Label and detail of a node."""
        if kind == "relation":
            condition = self._filter.get(name, "")
            stream = next((s for r, s in self._stream.items() if r == name), name)
            return stream, f"where {condition}" if condition else "all tuples"
        if kind == "result":
            members = self._members.get(name, [])
            conditions = dict.fromkeys(f"{s} where {c}" for s, c in members if c)
            return " ⋈ ".join(s for s, _ in members), "; ".join(conditions) or "all tuples"
        return name, ""

    def _condition(self, relation: RelationId) -> str:
        return self._filter.get(str(relation), "")


def _bare(text: str) -> str:
    """``text`` without parentheses around all of it.

    >>> _bare("(x > 10)"), _bare("(a) OR (b)")
    ('x > 10', '(a) OR (b)')
    """
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if at and at == len(text) - 1 else text
    return text

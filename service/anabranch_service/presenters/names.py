"""User-facing names of relations and intermediate results."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.rest.names import bare
from anabranch_contract.rest.normalised import NormalisedInfo


class Describer:
    """Makes user-facing names of relations and intermediate results: streams with their filters."""

    def __init__(self, ruleset: Ruleset, meanings: Mapping[str, NormalisedInfo]) -> None:
        self._stream = {r.id: str(r.stream) for r in ruleset.relations}
        self._filter: dict[str, str] = {}
        for meaning in meanings.values():
            for alias in meaning.aliases:
                parts = (bare(part.replace(f"{alias.alias}.", "")) for part in alias.filter)
                self._filter.setdefault(alias.relation, " AND ".join(parts))
        self._members = {
            str(s.mir): [(str(self._stream[r]), self._filter.get(str(r), "")) for r in s.relations]
            for s in ruleset.stores
        }

    def of(self, kind: str, name: str) -> tuple[str, str]:
        """Return label (streams) and detail (filters) of a relation or an intermediate result."""
        if kind == "relation":
            condition = self._filter.get(name, "")
            stream = next((s for r, s in self._stream.items() if r == name), name)
            return stream, f"where {condition}" if condition else "all tuples"
        if kind == "result":
            members = self._members.get(name, [])
            conditions = dict.fromkeys(f"{s} where {c}" for s, c in members if c)
            return " ⋈ ".join(s for s, _ in members), "; ".join(conditions) or "all tuples"
        return name, ""

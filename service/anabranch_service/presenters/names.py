"""User-facing names of relations and intermediate results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.state_report import StateReport
from anabranch_contract.rest.names import relation_filters
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.planning.joint_plan import PlanNamesOut, RelationNameOut


def plan_names_out(
    meanings: Iterable[NormalisedInfo], explain: Mapping[str, Any], state: StateReport | None
) -> PlanNamesOut:
    """Return the names of relations, and of the results in a plan or in the stored state."""
    stored = () if state is None else state.stores
    found = {
        **{one.mir: list(one.members) for one in stored},
        **{str(step["mir"]): list(step["members"]) for step in explain.get("steps", ())},
    }
    return PlanNamesOut(
        relations=[
            RelationNameOut(relation=relation, stream=stream, filter=condition)
            for relation, (stream, condition) in sorted(relation_filters(meanings).items())
        ],
        results={mir: members for mir, members in sorted(found.items()) if len(members) > 1},
    )


class Describer:
    """Makes user-facing names of relations and intermediate results: streams with their filters."""

    def __init__(self, ruleset: Ruleset, meanings: Mapping[str, NormalisedInfo]) -> None:
        self._stream = {r.id: str(r.stream) for r in ruleset.relations}
        filters = relation_filters(meanings.values())
        self._filter = {relation: condition for relation, (_, condition) in filters.items()}
        self._members = {
            str(s.mir): [(str(self._stream[r]), self._filter.get(str(r), "")) for r in s.relations]
            for s in ruleset.stores
        }

    def streams_of_results(self) -> dict[str, tuple[str, ...]]:
        """Map the node of each intermediate result to the streams of its members, sorted."""
        return {
            f"result:{mir}": tuple(sorted(stream for stream, _ in members))
            for mir, members in self._members.items()
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

"""Results that are too old to be of use when they are found (``semantics.md``, "Freshness")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract.plans.ruleset import arrival_edge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch_contract.plans.ruleset import Edge, Ruleset
    from anabranch_runtime.state.manifest import State


def present(state: State, planned: int | None) -> int | None:
    """By what the age of tuples is measured in the next batch (microseconds); None: nothing has
    an age yet.

    Args:
        planned: when the batch was planned; None: not known, the greatest event time counts.
    """
    if planned is not None:
        return planned
    known = (stream.max_tau for stream in state.streams.values())
    return max((tau for tau in known if tau is not None), default=None)


def oldest_starts(ruleset: Ruleset, now: int | None) -> Mapping[Edge, int]:
    """Edge -> the least event time of a tuple that may still begin a result behind it, for edges
    behind which every query has such a limit, and no intermediate result is kept.
    """
    if now is None or not any(query.freshness for query in ruleset.queries):
        return {}
    limits = {(q.id, label): now - most for q in ruleset.queries for label, most in q.freshness}
    starts = {rule.out: rule.start for rule in ruleset.probe_rules}
    found: dict[Edge, int | None] = {
        rule.edge: None
        for rule in ruleset.store_rules
        if rule.edge not in {arrival_edge(r.id) for r in ruleset.relations}
    }

    def note(edge: Edge, limit: int | None) -> None:
        known = found.get(edge, limit)
        found[edge] = None if known is None or limit is None else min(known, limit)

    for output in ruleset.output_rules:
        if output.edge in starts:
            note(output.edge, limits.get((output.query, starts[output.edge])))
    for rule in reversed(ruleset.paths):
        note(rule.edge, found.get(rule.out))
    return {edge: limit for edge, limit in found.items() if limit is not None and edge in starts}

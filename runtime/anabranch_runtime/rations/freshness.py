"""Freshness limits: greatest ages of members of results (``semantics.md``, "Freshness")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch_contract.plans.ruleset import Edge, QuerySpec, Ruleset
from anabranch_contract.queries.joins import RelationId, StreamName
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.rations.limits import behind
from anabranch_runtime.state.manifest import State


def present(state: State, planned: int | None) -> int | None:
    """Return the time from which ages of tuples are counted in the next batch (microseconds); None
    before the first event time.

    Args:
        planned: planning time of the batch; None: unknown, so the greatest event time is taken.
    """
    if planned is not None:
        return planned
    known = (stream.newest for stream in state.streams.values())
    return max((tau for tau in known if tau is not None), default=None)


def oldest_starts(ruleset: Ruleset, now: int | None) -> Mapping[Edge, int]:
    """Return edge -> least event time at which an arriving tuple can still complete a fresh result;
    only edges that lead to no stored results, and whose queries all have freshness limits."""
    limited = () if now is None else _limited(ruleset)
    if now is None or not limited:
        return {}
    limits = {(q.id, label): now - most for q in limited for label, most in q.freshness}
    found = behind(ruleset, lambda query, start: limits.get((query, start)), None, _least)
    return {edge: limit for edge, limit in found.items() if limit is not None}


@per_ruleset
def _limited(ruleset: Ruleset) -> list[QuerySpec]:
    """Return the ruleset's queries that have a freshness limit."""
    return [query for query in ruleset.queries if query.freshness]


def fresh_until(
    query: QuerySpec, streams: Mapping[RelationId, StreamName], reached: Mapping[str, int]
) -> int | None:
    """Return the last time at which a result of ``query`` may be fresh; None if unlimited.

    Args:
        streams: relation -> stream. ``reached``: stream -> greatest event time of a member of the
            result; missing streams: unknown.
    """
    stream_of = {label: streams[relation] for _, label, relation in query.members}
    ends = (reached[s] + most for a, most in query.freshness if (s := stream_of[a]) in reached)
    return min(ends, default=None)


def _least(wanted: Sequence[int | None]) -> int | None:
    known = [limit for limit in wanted if limit is not None]
    return min(known) if known and len(known) == len(wanted) else None

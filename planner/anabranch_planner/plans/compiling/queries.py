"""The queries of a ruleset: their specifications, and the statistics to keep for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.queries.joins import JoinQuery, QueryId, RelationId
from anabranch_contract.queries.mirs import join_keys
from anabranch_contract.queries.outer_joins import registered

#: A relation, and the (attribute, key type) of a combination.
Sketch = tuple[RelationId, tuple[tuple[str, str], ...]]
_NO_SINK = SinkSpec()


def query_spec(
    query: JoinQuery, sink: SinkSpec | None, limits: Mapping[str, int], *, past: bool
) -> QuerySpec:
    """The query as workers see it; arguments as of
    :func:`~anabranch_planner.plans.compile.compile_ruleset`.
    """
    name = registered(query.id)
    return QuerySpec(
        query.id,
        tuple((m.alias, m.label, m.relation) for m in query.members),
        query.bounds,
        query.projection,
        sink or _NO_SINK,
        query.view,
        query.outer,
        None if name == query.id else QueryId(name),
        tuple((m.label, limits[m.alias]) for m in query.members if m.alias in limits),
        past,
    )


def check_same(queries: Iterable[JoinQuery], running: Ruleset) -> None:
    """Check that ``running`` has exactly ``queries``, whatever their sinks, limits and pasts.

    Raises:
        RulesetError: a query differs, or one of the two lacks it.
    """
    specs = {q.id: q for q in running.queries}
    changed = []
    for query in queries:
        spec, same = specs.pop(query.id, None), query_spec(query, None, {}, past=False)
        if spec is None or spec != replace(
            same, sink=spec.sink, freshness=spec.freshness, past=spec.past
        ):
            changed.append(query.id)
    for name in [*changed, *specs]:
        raise RulesetError(
            "query-changed",
            f"query {name} is not what the running rules have under its name",
            remedy="wait for the next epoch",
        )


def sketches(queries: Iterable[JoinQuery]) -> set[Sketch]:
    """Key combinations whose distinct counts the cost model can use: per pair of labels."""
    wanted: set[Sketch] = set()
    for query in queries:
        relation_of = {m.label: m.relation for m in query.members}
        for one in query.labels:
            for key_class in query.classes:
                for ref in key_class.restrict(frozenset({one})):
                    wanted.add((relation_of[one], ((ref.attribute, key_class.type),)))
            for other in query.labels:
                if one == other:
                    continue
                pairs = join_keys(query.classes, frozenset({other}), frozenset({one}))
                if len(pairs) > 1:
                    parts = tuple(sorted((b.attribute, t) for _, b, t in pairs))
                    wanted.add((relation_of[one], parts))
    return wanted

"""Descriptions of queries in a ruleset, and the distinct counts that workers measure for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.queries.joins import JoinQuery, QueryId, RelationId
from anabranch_contract.queries.mirs import join_keys
from anabranch_contract.queries.outer_joins import registered
from anabranch_planner.cost.parts import PlanPart

#: A relation, and the attributes (with key types) whose distinct combinations workers count.
Sketch = tuple[RelationId, tuple[tuple[str, str], ...]]
_NO_SINK = SinkSpec()


def query_specs(
    part: PlanPart,
    sinks: Mapping[str, SinkSpec],
    freshness: Mapping[str, Mapping[str, int]],
    past: Collection[str],
) -> Sequence[QuerySpec]:
    """Descriptions of a part's queries in a ruleset; arguments as of ``compile_ruleset``."""
    terms = [
        (
            sinks.get(registered(q.id) if q.united else q.id, _NO_SINK),
            dict(freshness.get(q.id, {})),
            registered(q.id) in past,
        )
        for q in part.queries
    ]
    known = len(part.queries) - len(part.grown)

    def make() -> Sequence[QuerySpec]:
        before = part.before("specs", terms[:known])
        first, specs = (0, []) if before is None else (known, before)
        made = zip(part.queries[first:], terms[first:], strict=True)
        return [*specs, *(_spec(q, sink, limits, past=p) for q, (sink, limits, p) in made)]

    return part.once("specs", terms, make)


def _spec(query: JoinQuery, sink: SinkSpec, limits: Mapping[str, int], *, past: bool) -> QuerySpec:
    name = registered(query.id)
    return QuerySpec(
        query.id,
        tuple((m.alias, m.label, m.relation) for m in query.members),
        query.bounds,
        query.projection,
        sink,
        query.view,
        query.outer,
        None if query.united or name == query.id else QueryId(name),
        tuple((m.label, limits[m.alias]) for m in query.members if m.alias in limits),
        past,
        query.united,
        query.looked_up,
        query.expansions,
    )


def check_same(queries: Iterable[JoinQuery], running: Ruleset) -> None:
    """Check that ``running`` has exactly ``queries``; sinks, freshness and past results may differ.

    Raises:
        RulesetError: a query differs, or is missing on one side.
    """
    mine = {q.id: _spec(q, _NO_SINK, {}, past=False) for q in queries}
    theirs = {q.id: replace(q, sink=_NO_SINK, freshness=(), past=False) for q in running.queries}
    for name in [*mine, *theirs]:
        if mine.get(name) != theirs.get(name):
            raise RulesetError(
                "query-changed",
                f"query {name} differs from the query of that name in the running rules",
                remedy="wait for the next epoch",
            )


def sketches(queries: Iterable[JoinQuery]) -> set[Sketch]:
    """Attribute combinations in a ruleset whose distinct values workers count (join keys)."""
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

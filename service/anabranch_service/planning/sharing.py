"""Decision whether a new query gets its own stores, or shares stores with weaker filters.

A query over ``a WHERE v > 5`` beside one over ``a WHERE v > 3`` can have a store of its own, with
fewer rows, or use the other's store and check ``v > 5`` after joining: then the two queries share
their common steps. Both variants are planned, together with the queries that read most of the same
streams, and the cheaper one is taken. The decision precedes the first plan with the query, and is
final: a running query never switches stores, since they hold different parts of the past.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from anabranch_contract.codec import to_json
from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import JoinQuery, Relation, RelationId, Stream, StreamName
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_planner.cost.statistics.statistics import Statistics, measured
from anabranch_planner.normal.implication import weaker
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.request import Registered, read_queries
from anabranch_service.registry.describe import describe
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import NormalForms, usable_streams

_LOG = structlog.get_logger(__name__)

#: Most other queries that are planned with a new one, to compare own with shared stores.
NEIGHBOURS = 4
#: Time limits in seconds: of one plan for comparison, and of all decisions of an epoch.
PLAN_SECONDS, ALL_SECONDS = 0.2, 2.0
#: Least relative saving of cost for which a query shares stores.
WORTH = 1e-6


@dataclass(frozen=True, slots=True)
class Shared:
    """Decision on the stores of one query.

    Attributes:
        relaxed: alias -> weaker filter of the store that it shares, as in the query's record;
            aliases with a store of their own are absent.
        normalised: description of the query's normal form with these filters.
    """

    relaxed: Mapping[str, list[dict[str, Any]]]
    normalised: NormalisedInfo

    def on(self, record: QueryRecord, seen: QueryRecord) -> QueryRecord:
        """Write the decision into ``record``, unless its normal form differs from that of ``seen``,
        the record for which the decision was made (a stream may have changed meanwhile).
        """
        if record.normalised != seen.normalised:
            return record
        given = {"relaxed": dict(self.relaxed), "normalised": self.normalised}
        return record.model_copy(update={**given, "sharing_decided": True})


@dataclass(slots=True)
class _Stores:
    """The relations (filtered streams) that registered queries store, with these queries."""

    by_stream: dict[StreamName, dict[RelationId, Relation]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    users: dict[RelationId, list[JoinQuery]] = field(default_factory=lambda: defaultdict(list))

    def add(self, query: JoinQuery) -> None:
        for relation in query.relations:
            self.by_stream[relation.stream][relation.id] = relation
            self.users[relation.id].append(query)

    def weaker(self, query: JoinQuery) -> dict[str, Relation]:
        """Alias of ``query`` -> relation with a weaker filter, whose store it may share."""
        streams = {relation.stream for relation in query.relations}
        return weaker(query, (r for s in streams for r in self.by_stream.get(s, {}).values()))

    def neighbours(self, query: JoinQuery, relations: Iterable[Relation]) -> list[JoinQuery]:
        """Queries over ``relations`` that have the most streams in common with ``query``."""
        streams = {relation.stream for relation in query.relations}
        found = {q.id: q for relation in relations for q in self.users[relation.id]}

        def common(other: JoinQuery) -> tuple[int, str]:
            return -len(streams & {r.stream for r in other.relations}), other.id

        return sorted(found.values(), key=common)[:NEIGHBOURS]


def decide_sharing(found: Registered, forms: NormalForms, most_aliases: int) -> dict[str, Shared]:
    """Decide for each query without a decision which stores it shares.

    Args:
        most_aliases: queries with more aliases are left out of the comparison.
    """
    new = [record for record in found.wanted if not record.sharing_decided]
    if not new:
        return {}
    streams, stores, names = usable_streams(found.streams.values()), _Stores(), {r.id for r in new}
    small = (r for r in found.wanted if len(r.normalised.aliases) <= most_aliases)
    for query in read_queries((r for r in small if r.id not in names), streams, forms)[0]:
        stores.add(query)
    known = Statistics() if found.snapshot is None else measured(found.snapshot)
    decided, late = {}, []
    deadline = Deadline(time.monotonic, seconds=ALL_SECONDS)
    for record in new:
        try:
            own = forms.of(record, streams)
        except PlannerError:
            # Planning rejects it with a reason.
            continue
        query, shared = own, Shared({}, record.normalised)
        if deadline.expired():
            late.append(record.id)
        elif record.sql is not None and own.outer is None and not own.united:
            query, shared = _cheaper(record, own, stores, streams, known, found.options, forms)
        decided[record.id] = shared
        forms.keep(shared.on(record, record), query, streams)
        stores.add(query)
    if late:
        _LOG.warning("too many new queries at once: these share no filters", queries=late)
    return decided


def _cheaper(
    record: QueryRecord,
    own: JoinQuery,
    stores: _Stores,
    streams: Mapping[str, Stream],
    known: Statistics,
    options: PlanningSettings,
    forms: NormalForms,
) -> tuple[JoinQuery, Shared]:
    """The cheaper variant of a new query: with its own stores, or with shared ones."""
    alone = own, Shared({}, record.normalised)
    relations = stores.weaker(own)
    if not relations:
        return alone
    others = stores.neighbours(own, relations.values())
    relaxed: dict[str, Sequence[Expr]] = {alias: r.filter for alias, r in relations.items()}
    try:
        shared = forms.statement(record).normalise(record.id, streams, relaxed)
        cost, shared_cost = (_cost([*others, one], known, options) for one in (own, shared))
        if shared_cost >= cost * (1 - WORTH):
            return alone
        meaning = describe(shared, streams)
    except PlannerError as cause:
        _LOG.warning("filters are not shared", query=record.id, error=repr(cause))
        return alone
    return shared, Shared({alias: to_json(kept) for alias, kept in relaxed.items()}, meaning)


def _cost(queries: Sequence[JoinQuery], statistics: Statistics, options: PlanningSettings) -> float:
    return optimise(
        queries,
        statistics,
        Options(
            optimizer=options.optimizer,
            objective=options.objective,
            parallelism=options.parallelism,
            mir=options.intermediate_results != 0,
            deadline=Deadline(time.monotonic, seconds=PLAN_SECONDS),
        ),
    ).cost

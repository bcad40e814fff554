"""The distinct probe steps of a plan, the unit of footprints, plan differences and cost shares.

If two probe orders of one owner have a common prefix, its steps run once. A step is identified by
its *prefix*, the probes up to and including it; every prefix of a plan is listed once, with the
sub-joins that determine its price and its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Plan, ProbeOrder, Step
from anabranch_contract.queries.joins import JoinQuery, Label, QueryId
from anabranch_contract.queries.mirs import Mir, MirId, sub_join

Labels = frozenset[Label]
#: Steps of a probe order, each as (probed store, aliases that it adds, resulting sub-join).
Path = tuple[tuple[MirId, tuple[Label, ...], MirId], ...]


class Prefix(NamedTuple):
    """Identity of an executed probe step: owner, starting alias, probes up to it, and substream."""

    owner: str
    start: Label
    path: Path
    substream: int = 0


class PlanError(PlannerError):
    """A plan does not answer its queries."""


@dataclass(frozen=True, slots=True)
class Trail:
    """A probe step of a plan, with the sub-joins before and after it.

    Attributes:
        owner, start: the query that runs it alone (empty: shared); the arriving tuple's alias.
        substream: index of that tuple's substream.
        before, after: the sub-joins before and after the step.
        head: the aliases of ``before``, as the query names them.
        query: a query that contains the step, for its predicates.
    """

    owner: str
    start: Label
    step: Step
    before: Mir
    after: Mir
    head: Labels
    query: JoinQuery
    substream: int = 0


@dataclass(frozen=True, slots=True)
class Trails:
    """The executed steps of a plan, each identified by its prefix (the probes up to it).

    Attributes:
        orders: the prefixes of each of ``Plan.orders``, in that order.
        steps: every prefix once, in order of first appearance.
    """

    orders: tuple[tuple[Prefix, ...], ...]
    steps: dict[Prefix, Trail]


class SubJoins:
    """Cache of the sub-joins of some queries.

    Queries are compared by identity, since two queries may have the same name.
    """

    def __init__(self, queries: Sequence[JoinQuery]) -> None:
        self._with: dict[Label, list[JoinQuery]] = {}
        for query in queries:
            for label in query.labels:
                self._with.setdefault(label, []).append(query)
        self._by_id = {q.id: q for q in reversed(queries)}
        self._known: dict[tuple[int, Labels], Mir] = {}
        self._witnesses: dict[tuple[Labels, MirId], JoinQuery | None] = {}

    def of(self, query: JoinQuery, labels: Labels) -> Mir:
        """The sub-join of ``query`` over ``labels``."""
        key = id(query), labels
        if key not in self._known:
            self._known[key] = sub_join(query, labels)
        return self._known[key]

    def query(self, name: str) -> JoinQuery | None:
        """The query called ``name``, among the queries whose sub-joins are cached."""
        return self._by_id.get(QueryId(name))

    def containing(self, labels: Labels, mir: MirId) -> JoinQuery | None:
        """The first query whose sub-join over ``labels`` is ``mir``."""
        key = labels, mir
        if key not in self._witnesses:
            found = (
                q
                for q in min((self._with.get(label, []) for label in labels), key=len)
                if labels.issubset(q.labels) and self.of(q, labels).id == mir
            )
            self._witnesses[key] = next(found, None)
        return self._witnesses[key]


def loads(
    plan: Plan, found: Trails, rations: Mapping[tuple[str, Label], float]
) -> dict[Prefix, float]:
    """Fraction of tuples that each step of ``plan`` processes: the largest ration of its goals; 1
    if it maintains an intermediate result (``docs/semantics.md``, "Rations").

    Args:
        found: the distinct steps of ``plan``.
        rations: (query, alias that arrives last) -> admitted fraction of tuples; default 1.
    """
    taken = dict.fromkeys(found.steps, 0.0)
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        share = 1.0 if order.maintains else rations.get((order.goal, order.start), 1.0)
        for prefix in prefixes:
            taken[prefix] = max(taken[prefix], share)
    return taken


def trails(plan: Plan, queries: Sequence[JoinQuery], subs: SubJoins | None = None) -> Trails:
    """Every distinct probe step of ``plan``.

    Args:
        subs: cache of the sub-joins of ``queries``, shared by several plans.

        Raises:
            PlanError: an order's goal is not one of the queries.
    """
    subs = SubJoins(queries) if subs is None else subs
    members = {m.id: frozenset(m.members) for m in plan.mirs}
    orders: list[tuple[Prefix, ...]] = []
    steps: dict[Prefix, Trail] = {}
    for order in plan.orders:
        query = _witness(order, members, subs)
        head: Labels = frozenset({order.start})
        path: Path = ()
        prefixes = []
        for step in order.steps:
            grown = head | frozenset(step.members)
            after = subs.of(query, grown)
            path = (*path, (step.target, step.members, after.id))
            prefix = Prefix(order.owner, order.start, path, order.substream)
            if prefix not in steps:
                before = subs.of(query, head)
                steps[prefix] = Trail(
                    order.owner, order.start, step, before, after, head, query, order.substream
                )
            prefixes.append(prefix)
            head = grown
        orders.append(tuple(prefixes))
    return Trails(tuple(orders), steps)


def _witness(order: ProbeOrder, members: dict[MirId, Labels], subs: SubJoins) -> JoinQuery:
    if order.maintains:
        mir = MirId(order.goal)
        query = subs.containing(members[mir], mir) if mir in members else None
    else:
        query = subs.query(order.goal)
    if query is None:
        raise PlanError("unknown-goal", f"no query has the goal {order.goal!r}")
    return query

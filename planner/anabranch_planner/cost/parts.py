"""Division of a plan into parts that share no probe step, so that later plans can reuse them.

Two goals (queries, or intermediate results to maintain) belong to one part in two cases: an order
of one probes the other's store, or orders of both begin with the same alias and the same members.
In the second case they may share steps and names of edges (``plans.compile``). Probes of a common
base store do not make them one part.

Values that follow from a part alone (its steps, rules and validity) are computed once. A plan made
from its predecessor (``replan.session``) reuses the orders of unchanged queries, so
:func:`divide` returns the predecessor's part with its computed values.

A part may *grow* by new queries that have the same joins and steps as one of its queries, over base
stores only. Then the values of the predecessor's part are extended, not computed again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from anabranch_contract.plans.plan import Plan, ProbeOrder, StoreCopy
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.mirs import MirId, base_mir
from anabranch_planner.cost.footprint import Footprint, footprint_of
from anabranch_planner.cost.steps import PlanError, Prefix, SubJoins, Trails, trails
from anabranch_planner.cost.validate import validate_plan

_T = TypeVar("_T")
#: A property of a goal: the goal itself, a probed store, or the first probe of an order. Goals that
#: have one in common are in one part.
_Tie = tuple[object, ...]
_Identity = tuple[object, ...]
#: Name -> cached value, with the inputs from which it was computed.
_Made = dict[str, tuple[object, Any]]
#: Maximum number of queries by which a plan's part grows.
GROWTH = 16


@dataclass(frozen=True, slots=True)
class Grown:
    """A query by which a part has grown, and an earlier query with the same joins and steps."""

    query: JoinQuery
    like: JoinQuery


class PlanPart:
    """Part of a plan: queries that share no probe steps with others; compared by identity.

    Attributes:
        first: number of the part's first step; step numbers are unique in the plan.
        plan: the orders, sub-joins and copies of the part, as a plan of ``queries``. Its costs
            are the whole plan's. A base store's copy used by several parts is in each of them.
    """

    def __init__(self, first: int, plan: Plan, queries: tuple[JoinQuery, ...]) -> None:
        self.first, self.plan, self.queries = first, plan, queries
        self._made: _Made = {}
        #: The newest queries of the part, by which it has grown; and the values cached before that.
        self.grown: tuple[Grown, ...] = ()
        self._before: _Made = {}

    @cached_property
    def subs(self) -> SubJoins:
        """Cache of the sub-joins of the queries in this part of the plan."""
        return SubJoins(self.queries)

    @cached_property
    def trails(self) -> Trails:
        """The distinct probe steps of the orders in this part of the plan."""
        return trails(self.plan, self.queries, self.subs)

    @cached_property
    def footprint(self) -> Footprint:
        """The probe steps and store copies of this part of the plan."""
        return footprint_of(self.plan, self.trails)

    @property
    def end(self) -> int:
        """Number of the last probe step of the part, plus one."""
        return self.first + len(self.trails.steps)

    def validate(self) -> None:
        """Check that the part's plan answers its queries (:func:`.cost.validate.validate_plan`).

        Raises:
            PlanError: names the first violation.
        """
        self.once("valid", (), self._validate)

    def _validate(self) -> None:
        if "valid" not in self._before:
            validate_plan(self.plan, self.queries, self.trails)
            return
        # A new query's orders have the prefixes of the earlier query's with the same joins.
        pieces = _Pieces(self.plan)
        for one in self.grown:
            both = (one.query, one.like)
            orders = [order for query in both for order in self.answers[query.id]]
            validate_plan(pieces.of(both, orders), both)

    @cached_property
    def answers(self) -> dict[str, tuple[ProbeOrder, ...]]:
        """Query -> the probe orders that answer it, in this part of the plan."""
        found: dict[str, list[ProbeOrder]] = defaultdict(list)
        for order in self.plan.orders:
            if not order.maintains:
                found[order.goal].append(order)
        return {query: tuple(orders) for query, orders in found.items()}

    def grown_to(self, plan: Plan, queries: tuple[JoinQuery, ...]) -> PlanPart | None:
        """The part of ``plan`` with ``queries`` if this part has grown to it; else None."""
        count = len(self.queries)
        new = queries[count:]
        if not 0 < len(new) <= GROWTH or plan.substreams:
            return None
        bases = {mir.id for mir in plan.mirs if mir.is_base}
        names, answers = {query.id for query in new}, defaultdict[str, list[ProbeOrder]](list)
        trails_of, others = iter(self.trails.orders), []
        for order in plan.orders:
            if order.goal in names and not order.maintains:
                answers[order.goal].append(order)
            else:
                others.append(order)
        rest = replace(plan, orders=tuple(others))
        if _identity(rest, queries[:count]) != _identity(self.plan, self.queries):
            return None
        grown, own = [], dict[int, tuple[Prefix, ...]]()
        for query in new:
            like = next((one for one in self.queries if self._alike(one, query, answers)), None)
            targets = {step.target for order in answers[query.id] for step in order.steps}
            if like is None or not targets <= bases:
                return None
            grown.append(Grown(query, like))
            own |= zip(map(id, answers[query.id]), self._trails_of(like), strict=True)
        part = PlanPart(self.first, plan, queries)
        orders = tuple(own[id(o)] if id(o) in own else next(trails_of) for o in plan.orders)
        part.trails, part.footprint = Trails(orders, self.trails.steps), self.footprint
        part.answers = self.answers | {name: tuple(some) for name, some in answers.items()}
        part.grown, part._before = tuple(grown), dict(self._made)
        return part

    def _alike(
        self, one: JoinQuery, new: JoinQuery, answers: Mapping[str, Sequence[ProbeOrder]]
    ) -> bool:
        """Whether ``new`` has the joins of ``one``, and ``answers`` the same probe steps."""
        return one.joins_like(new) and [
            (order.owner, order.start, order.steps) for order in self.answers[one.id]
        ] == [(order.owner, order.start, order.steps) for order in answers[new.id]]

    def _trails_of(self, query: JoinQuery) -> list[tuple[Prefix, ...]]:
        pairs = zip(self.plan.orders, self.trails.orders, strict=True)
        return [found for order, found in pairs if order.goal == query.id and not order.maintains]

    def before(self, what: str, given: object) -> Any:
        """The value ``what``, cached before the part grew; None if it is unknown, or was computed
        from inputs other than ``given``."""
        known = self._before.get(what)
        return None if known is None or known[0] != given else known[1]

    def once(self, what: str, given: object, make: Callable[[], _T]) -> _T:
        """Result of ``make``, cached in the plan's part until ``given`` changes.

        Args:
            what: name of the cache entry.
            given: inputs of ``make`` other than the part itself.
        """
        known = self._made.get(what)
        if known is None or known[0] != given:
            known = self._made[what] = (given, make())
        return cast("_T", known[1])


def whole(plan: Plan, queries: Sequence[JoinQuery]) -> PlanPart:
    """The part that consists of an undivided plan."""
    return PlanPart(0, plan, tuple(queries))


def divide(
    plan: Plan, queries: Sequence[JoinQuery], before: Iterable[PlanPart] = ()
) -> tuple[PlanPart, ...]:
    """Split ``plan`` into its parts, in the order of ``queries``.

    Args:
        before: the parts of the previous plan; unchanged ones are reused with their caches.

    Raises:
        PlanError: an order's goal is neither a query nor a maintained intermediate result.
    """
    known = {_identity(part.plan, part.queries): part for part in before}
    first_of = {id(part.queries[0]): part for part in known.values()}
    first = max((part.end for part in known.values()), default=0)
    pieces, found = _Pieces(plan), []
    for members, orders in _groups(plan, queries):
        made = pieces.of(members, orders)
        part, old = known.get(_identity(made, members)), first_of.get(id(members[0]))
        if part is None and old is not None:
            part = old.grown_to(made, members)
        if part is None:
            part = PlanPart(first, made, members)
            first = part.end
        found.append(part)
    return tuple(found)


def footprint_of_parts(parts: Iterable[PlanPart]) -> Footprint:
    """The steps and copies of the plan that consists of ``parts``."""
    found = [part.footprint for part in parts]
    return Footprint(
        steps=frozenset().union(*(one.steps for one in found)),
        copies=frozenset().union(*(one.copies for one in found)),
    )


def _identity(plan: Plan, queries: tuple[JoinQuery, ...]) -> _Identity:
    """Cache key of a part. It consists of the identities of orders and queries, so parts with equal
    keys have equal costs."""
    return (
        plan.optimizer,
        plan.substreams,
        *map(id, queries),
        *map(id, plan.orders),
        *((c.owner, c.mir, c.partition, c.insert_cost) for c in plan.copies),
    )


def _groups(
    plan: Plan, queries: Sequence[JoinQuery]
) -> list[tuple[tuple[JoinQuery, ...], list[ProbeOrder]]]:
    """Groups of queries that share probe steps, each with the probe orders of its queries."""
    base = {m.id for m in plan.mirs if m.is_base}
    parents: dict[_Tie, _Tie] = {}

    def root(tie: _Tie) -> _Tie:
        while (above := parents.setdefault(tie, tie)) != tie:
            parents[tie] = parents[above]
            tie = above
        return tie

    for order in plan.orders:
        goal = root(_goal(order))
        ties: list[_Tie] = [
            (order.owner, True, s.target) for s in order.steps if s.target not in base
        ]
        if order.steps:
            ties.append((order.owner, order.start, order.steps[0].members))
        for tie in ties:
            # In this direction, since the root of a shared step or store then stays the same.
            if (shared := root(tie)) != goal:
                parents[goal] = goal = shared
    members: dict[_Tie, list[JoinQuery]] = {}
    owner_of = {o.goal: o.owner for o in plan.orders if not o.maintains}
    for query in queries:
        tie = (owner_of.get(query.id, ""), False, query.id)
        members.setdefault(root(tie), []).append(query)
    orders: dict[_Tie, list[ProbeOrder]] = defaultdict(list)
    for order in plan.orders:
        orders[root(_goal(order))].append(order)
    for tie in orders.keys() - members.keys():
        raise PlanError("unknown-goal", f"no query has the goal {orders[tie][0].goal!r}")
    return [(tuple(some), orders[tie]) for tie, some in members.items()]


def _goal(order: ProbeOrder) -> _Tie:
    return (order.owner, order.maintains, order.goal)


class _Pieces:
    """Extracts the sub-plan of a part: its sub-joins and store copies."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._mirs = {mir.id: mir for mir in plan.mirs}
        self._copies: dict[tuple[str, MirId], list[StoreCopy]] = defaultdict(list)
        for copy in plan.copies:
            self._copies[copy.owner, copy.mir].append(copy)

    def of(self, queries: tuple[JoinQuery, ...], orders: Sequence[ProbeOrder]) -> Plan:
        """The part of the plan for ``queries``, whose probe orders are ``orders``."""
        owner_of = {o.goal: o.owner for o in orders if not o.maintains}
        stores = {(owner_of.get(q.id, ""), base_mir(r.id).id) for q in queries for r in q.relations}
        stores |= {(o.owner, MirId(o.goal)) for o in orders if o.maintains}
        stores |= {(o.owner, step.target) for o in orders for step in o.steps}
        return replace(
            self._plan,
            queries=tuple(sorted(q.id for q in queries)),
            orders=tuple(orders),
            mirs=tuple(self._mirs[m] for m in sorted({m for _, m in stores}) if m in self._mirs),
            copies=tuple(copy for store in sorted(stores) for copy in self._copies[store]),
        )

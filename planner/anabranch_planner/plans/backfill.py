"""Choice between backfilling an intermediate result's past and covering it by base probes.

**Setting.** An MIR ``X`` that a plan introduces is maintained from then on. Combinations of earlier
tuples are missing from its store: its *gap*. A probe of ``X`` covers the gap by also probing the
members one after the other (``semantics.md``, coverage rule). Alternatively, the missing
combinations are computed once, in the background, and added to ``X``: a *backfill*.

Time is measured in units of the statistics. The tuples counted by the statistics arrived in [0, 1],
the gap; ``u`` is the time since then. Tuples of ``j`` continue to arrive at rate ``|j|``. ``f(Y)``
is the selectivity of a sub-join's keys; ``reach_j`` and ``gap_j`` are as in
:mod:`~anabranch_planner.cost.timing`.

**Coverage.** A step sends partial results over ``H``, begun by ``i``, to ``X``. The gap is covered
by probing ``x_1 ... x_k``, the members of ``X`` in the order of ``compile``. These probes send the
partial results over ``H``, then those over ``H + x_1 ... x_s``, s < k, with all ``x`` in the gap.
At time ``u`` a tuple of ``i`` meets

    |j| * g_j(u),  g_j(u) = max(0, min(reach_j, 1 + u) - gap_j)                    of j in H
    |x| * b_x(u),  b_x(u) = max(0, min(1, 1 + u - gap_x) - max(0, 1 + u - reach_x))  of x in the gap

so that during a life of ``L`` coverage costs, summed over the plan's distinct steps that probe
``X``,

    sum over s < k of  f(H_s) * (product of |.| over H_s) * chi_s
                       * integral over u in [0, L] of  product of g_j(u) and b_x(u)

with ``H_s = H + x_1 ... x_s``. ``L`` is the smaller of the horizon and the longest time for which a
tuple of ``X`` can be joined (its widest window; infinite without a window). Over full history ``b``
is 1 and ``g`` is ``1 + u``.

**Backfill** reads the stored rows of one member ``y_1`` and probes the other members, in any order
of arrival. It sends the stored combinations over ``y_1 ... y_s``, s < k, and inserts the
combinations over ``X``. Their number is ``f(Y)`` times the product of ``|y| * kept_y``, but at most
the sub-join's cardinality. ``kept_y`` is the fraction of the tuples of [0, 1] that is still stored
(given by the longest window of any query on that relation; 1 without a window). The start is the
member with the cheapest backfill; each next member is the one that produces the fewest
combinations.

**Decision.** A new MIR is backfilled if that is cheaper than coverage. A decision for backfill
stands as long as plans keep the MIR. A decision against a backfill is reviewed with every plan, and
reversed only if coverage costs more than :data:`RECONSIDERED` times as much as the backfill:
statistics vary between epochs, and part of an older MIR's life is over already.

**The horizon** is the expected time for which plans will use the MIR, in units of the statistics. A
running pipeline counts the history so far, so the default 1 means the pipeline's age: the usual
estimate of a remaining life from an age alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import BACKFILL_HORIZON, Backfilling, Objective, Plan
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label, RelationId
from anabranch_contract.queries.mirs import Mir, MirId, base_mir, canonical, join_keys
from anabranch_planner.cost.footprint import Footprint, qualified
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.parts import PlanPart, divide
from anabranch_planner.cost.steps import Trail
from anabranch_planner.explain.explain import mir_label

#: Hysteresis: cost ratio coverage / backfill above which a plan reverses its no to a backfill.
RECONSIDERED = 2.0


@dataclass(frozen=True, slots=True)
class BackfillDecision:
    """Decision for an intermediate result: backfill its past rows, or cover them by base probes.

    Attributes:
        order: the members in the order in which a backfill joins them.
        coverage: cost of probing base stores for missing rows, over the result's expected life.
        cost: one-off cost of the backfill.
        chosen: whether the intermediate result is backfilled.
        reason: explanation for people.
    """

    mir: MirId
    owner: str
    order: tuple[Label, ...]
    coverage: float
    cost: float
    chosen: bool
    reason: str


def decide(
    plan: Plan,
    queries: Sequence[JoinQuery],
    model: CostModel,
    *,
    setting: Backfilling = Backfilling.AUTO,
    horizon: float = BACKFILL_HORIZON,
    running: Footprint | None = None,
    earlier: Iterable[BackfillDecision] = (),
    parts: Sequence[PlanPart] | None = None,
) -> tuple[BackfillDecision, ...]:
    """Decide for every intermediate result of ``plan`` whether to backfill it.

    Args:
        plan: a plan for ``queries``, made under ``model``.
        horizon: time for which plans will use a new result (see the module).
        running: footprint of the running plan, whose stores need no backfill, or None.
        earlier: the running plan's decisions.
        parts: the parts of ``plan`` (:func:`~anabranch_planner.cost.parts.divide`). A part reused
            from the previous plan keeps its costs, even if the windows of other queries have
            changed the estimated combinations of its members.

    Raises:
        PlannerError: the horizon is negative or NaN.
    """
    if not (math.isfinite(horizon) and horizon >= 0):
        raise PlannerError(
            "bad-horizon",
            f"the backfill horizon is {horizon}",
            field="backfill_horizon",
            remedy="give a finite number, 0 or more: multiples of the history so far",
        )
    parts = divide(plan, queries) if parts is None else parts
    if not any(_kept(part.plan) for part in parts):
        return ()
    retained = _retention(queries)
    known = {(b.owner, b.mir): b for b in earlier if b.chosen}
    old = set() if running is None else {store for store, _ in running.copies}
    found = []
    for part in parts:
        kept = _kept(part.plan)
        if not kept:
            continue
        given = horizon, tuple((r.id, retained[r.id]) for q in part.queries for r in q.relations)
        costs = _Costs(part.plan, retained, model)
        figures = part.once("past", given, partial(_figures, part, costs, horizon))
        for one in figures:
            before = known.get((one.owner, one.mir))
            order = one.order if before is None else before.order
            if order != one.order and set(order) == set(one.order):
                cost = costs.of_order(one.owner, kept[one.owner, one.mir], order)
                one = replace(one, order=order, cost=cost)
            new = MirId(qualified(one.owner, one.mir)) not in old
            found.append(_decided(one, setting, new=new, before=before is not None))
    return tuple(sorted(found, key=lambda b: (b.owner, b.mir)))


def _kept(plan: Plan) -> dict[tuple[str, MirId], Mir]:
    """(owner, id) -> each intermediate result that ``plan`` stores."""
    mirs = {m.id: m for m in plan.mirs if not m.is_base}
    return {(c.owner, c.mir): mirs[c.mir] for c in plan.copies if c.mir in mirs}


def _figures(part: PlanPart, costs: _Costs, horizon: float) -> list[BackfillDecision]:
    """Costs of coverage and of backfill for each intermediate result of ``part``."""
    probing: dict[tuple[str, MirId], list[Trail]] = {}
    for trail in part.trails.steps.values():
        probing.setdefault((trail.owner, trail.step.target), []).append(trail)
    found = []
    for store, mir in _kept(part.plan).items():
        coverage = math.fsum(
            costs.coverage(trail, mir, horizon) for trail in probing.get(store, ())
        )
        order, cost = costs.backfill(store[0], mir)
        found.append(
            BackfillDecision(mir.id, store[0], order, coverage, cost, chosen=False, reason="")
        )
    return found


def _decided(
    found: BackfillDecision, setting: Backfilling, *, new: bool, before: bool
) -> BackfillDecision:
    """The decision on a backfill by costs or by ``setting``; ``before``: its last outcome."""
    if setting is not Backfilling.AUTO:
        return replace(found, chosen=setting is Backfilling.ALWAYS, reason=f"setting: {setting}")
    if before and not new:
        return replace(found, chosen=True, reason="decided when it was introduced")
    least = found.cost * (1.0 if new else RECONSIDERED)
    if found.coverage > least:
        return replace(found, chosen=True, reason="cheaper than coverage")
    reason = "coverage is cheaper" if new else f"coverage costs less than {RECONSIDERED:g} times it"
    return replace(found, reason=reason)


def document(found: BackfillDecision) -> dict[str, Any]:
    """The decision on a backfill as JSON, for display."""
    return {**asdict(found), "label": mir_label(sorted(found.order)), "order": list(found.order)}


class _Costs:
    """Costs of backfills, and of the base probes that replace them, for one plan."""

    def __init__(
        self, plan: Plan, retained: Mapping[RelationId, int | None], model: CostModel
    ) -> None:
        self._model = model
        self._copies: dict[tuple[str, MirId], set[AttrRef | None]] = {}
        for copy in plan.copies:
            self._copies.setdefault((copy.owner, copy.mir), set()).add(copy.partition)
        self._kept = retained

    def coverage(self, trail: Trail, mir: Mir, horizon: float) -> float:
        """Cost of probing base stores for results missing in ``mir``, over its expected life."""
        after, start = trail.after, trail.start
        bounds = self._model.bounds(after)
        relation_of = dict(zip(after.members, after.relations, strict=True))
        # The members of ``mir`` under their labels in ``after``.
        members = trail.step.members
        life = min(horizon, max(self._life(x, after, bounds, relation_of) for x in members))

        def partial(labels: frozenset[Label]) -> float:
            factors = []
            for one in sorted(labels - {start}):
                reach, gap = self._reach(one, start, bounds, relation_of)
                factors.append(_gap_part(reach, gap) if one in members else _part(reach, gap))
            size = self._model.matches(canonical(after.classes, relation_of, labels))
            return size * _integral(factors, life)

        head, left, total = trail.head, list(members), 0.0
        sent = partial(head)
        while left:
            label = next(x for x in left if join_keys(after.classes, head, frozenset({x})))
            made = partial(head | {label})
            store = base_mir(relation_of[label]).id
            asks_all = self._asks_all(trail.owner, after, relation_of, head, label)
            total += self._model.price(sent, made, store, broadcast=asks_all)
            total += self._hop(sent, after, relation_of, head, label, broadcast=asks_all)
            sent, head = made, head | {label}
            left.remove(label)
        return total

    def backfill(self, owner: str, mir: Mir) -> tuple[tuple[Label, ...], float]:
        """The cheapest order in which a backfill can join the members of ``mir``, and its cost."""
        orders = [self._order(mir, start) for start in mir.members]
        return min(((o, self.of_order(owner, mir, o)) for o in orders), key=lambda x: (x[1], x[0]))

    def of_order(self, owner: str, mir: Mir, order: Sequence[Label]) -> float:
        """Cost of a backfill that joins in ``order``: partial results sent, and inserts."""
        relation_of = dict(zip(mir.members, mir.relations, strict=True))
        total, sent = 0.0, self._stored(mir, relation_of, frozenset(order[:1]))
        for at, label in enumerate(order[1:], start=1):
            head = frozenset(order[:at])
            made = self._stored(mir, relation_of, head | {label})
            store = base_mir(relation_of[label]).id
            asks_all = self._asks_all(owner, mir, relation_of, head, label)
            total += self._model.price(sent, made, store, broadcast=asks_all)
            total += self._hop(sent, mir, relation_of, head, label, broadcast=asks_all)
            sent = made
        return (
            total if self._model.objective is Objective.PAPER else total + self._model.stored(sent)
        )

    def _hop(
        self,
        sent: float,
        joined: Mir,
        relation_of: Mapping[Label, RelationId],
        head: frozenset[Label],
        label: Label,
        *,
        broadcast: bool,
    ) -> float:
        """Cost of a backfill's sending of tuples over ``head`` to hosts of ``label``'s store."""
        before, after = (
            canonical(joined.classes, relation_of, labels) for labels in (head, head | {label})
        )
        return self._model.hop(sent, before, after, None, broadcast=broadcast)

    def _order(self, mir: Mir, start: Label) -> tuple[Label, ...]:
        relation_of = dict(zip(mir.members, mir.relations, strict=True))
        order, left = [start], sorted(set(mir.members) - {start})
        while left:
            head = frozenset(order)
            near = [x for x in left if join_keys(mir.classes, head, frozenset({x}))]
            best = min(near, key=lambda x: (self._stored(mir, relation_of, head | {x}), x))
            order.append(best)
            left.remove(best)
        return tuple(order)

    def _stored(
        self, mir: Mir, relation_of: Mapping[Label, RelationId], labels: frozenset[Label]
    ) -> float:
        """Number of rows that a backfill's join of the stored tuples of ``labels`` produces."""
        joined = canonical(mir.classes, relation_of, labels)
        kept = math.prod(self._retained(relation_of[x]) for x in labels)
        return min(self._model.matches(joined) * kept, self._model.cardinality(joined))

    def _retained(self, relation: RelationId) -> float:
        """Fraction of a relation's tuples of one unit of time that is still stored at its end."""
        micros, span = self._kept.get(relation), self._model.span(relation)
        return 1.0 if micros is None or span is None else min(1.0, micros / span)

    def _asks_all(
        self,
        owner: str,
        mir: Mir,
        relation_of: Mapping[Label, RelationId],
        head: frozenset[Label],
        label: Label,
    ) -> bool:
        base = base_mir(relation_of[label])
        known: set[AttrRef | None] = {
            AttrRef(base.members[0], build.attribute)
            for _, build, _ in join_keys(mir.classes, head, frozenset({label}))
        }
        copies = self._copies.get((owner, base.id), {None})
        return None not in copies and not copies & known

    def _reach(
        self,
        label: Label,
        start: Label,
        bounds: Mapping[tuple[Label, Label], int],
        relation_of: Mapping[Label, RelationId],
    ) -> tuple[float, float]:
        """Greatest and least age of a tuple of ``label`` that an arriving ``start`` tuple joins,
        for the cost of coverage."""
        span = self._model.span(relation_of[label])
        if span is None:
            return math.inf, 0.0
        reach, least = bounds.get((label, start)), bounds.get((start, label), 0)
        return math.inf if reach is None else reach / span, max(0, -least) / span

    def _life(
        self,
        label: Label,
        after: Mir,
        bounds: Mapping[tuple[Label, Label], int],
        relation_of: Mapping[Label, RelationId],
    ) -> float:
        """Units of time for which a tuple of ``label`` can join later tuples, or inf."""
        span = self._model.span(relation_of[label])
        if span is None:
            return math.inf
        limits = [bounds.get((label, other)) for other in after.members if other != label]
        known = [d for d in limits if d is not None]
        return max(known) / span if len(known) == len(limits) else math.inf


def _retention(queries: Sequence[JoinQuery]) -> dict[RelationId, int | None]:
    """Relation -> microseconds for which stores keep its tuples; None: without limit."""
    found: dict[RelationId, int | None] = {}
    for query in queries:
        for i, member in enumerate(query.members):
            row = [d for j, d in enumerate(query.bounds[i]) if j != i]
            finite = [d for d in row if d is not None]
            kept = max(finite) if row and len(finite) == len(row) else None
            known = found.get(member.relation, 0)
            found[member.relation] = None if kept is None or known is None else max(kept, known)
    return found


#: A piecewise linear function of ``u`` (see the module), and its break points.
_Factor = tuple["Callable[[float], float]", tuple[float, ...]]


def _part(reach: float, gap: float) -> _Factor:
    """Factor ``g`` of the module: tuples of a relation met by a tuple that arrives at ``u``."""
    return lambda u: max(0.0, min(reach, 1 + u) - gap), (reach - 1, gap - 1)


def _gap_part(reach: float, gap: float) -> _Factor:
    """Factor ``b`` of the module: tuples in the gap met by a tuple that arrives at ``u``."""
    return (
        lambda u: max(0.0, min(1.0, 1 + u - gap) - max(0.0, 1 + u - reach)),
        (gap, gap - 1, reach, reach - 1),
    )


def _integral(factors: Sequence[_Factor], high: float) -> float:
    """The integral over [0, ``high``] of the product of ``factors``, for coverage costs."""
    inner = {p for _, points in factors for p in points if 0 < p < high}
    total = 0.0
    for low, end in pairwise(sorted({0.0, *inner, high})):
        width, polynomial = end - low, [1.0]
        for value, _ in factors:
            first, slope = value(low), (value(end) - value(low)) / width
            polynomial = [
                a * first + b * slope
                for a, b in zip([*polynomial, 0.0], [0.0, *polynomial], strict=True)
            ]
        total += sum(c * width ** (k + 1) / (k + 1) for k, c in enumerate(polynomial))
    return total

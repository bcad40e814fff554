"""The difference of two plans: added and removed probe steps and store copies, with their cost.

Both plans are priced by one cost model with the new statistics, so the difference is due to the
plans, not to newer measurements. A side may be a plan, or only its
:class:`~anabranch_planner.cost.footprint.Footprint`. A footprint does not record broadcasts or
predicates. So each step of a footprint is assumed to be routed by key if a copy of the store allows
that (as all optimisers here choose), and sub-joins are looked up in the queries of both plans. A
sub-join that no query contains has no estimate (None), which the report mentions.

Steps are compared by :class:`~anabranch_planner.cost.footprint.StepKey`, copies by store and
partition attribute. A store copy of both plans is *retained*. Tuples and bytes of a copy are
inserted per unit of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

from anabranch_contract.plans.plan import Plan, Step
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label, RelationId
from anabranch_contract.queries.mirs import Mir, MirId, base_mir
from anabranch_planner.cost.footprint import (
    Copy,
    Footprint,
    StepKey,
    copy_rank,
    qualified,
    step_key,
    unqualified,
)
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import Labels, SubJoins, trails
from anabranch_planner.cost.validate import knows, step_price
from anabranch_planner.explain.explain import mir_label
from anabranch_planner.search.demands import DEFAULT_WIDTH


@dataclass(frozen=True, slots=True)
class StepChange:
    """A probe step of one or both compared plans.

    Attributes:
        label: text for people, such as ``from S: S⋈T probes R``.
        tuples: number of tuples sent per unit of time; a broadcast sends one per partition.
        cost: cost of the step, in the unit of the objective; None: there is no estimate.
    """

    key: StepKey
    label: str
    tuples: float | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class StoreChange:
    """A store copy of one or both compared plans.

    Attributes:
        label: text for people, such as ``S⋈T[c]``.
        tuples, bytes: number and size of rows inserted per unit of time; None: no estimate.
        cost: cost of these inserts, in the unit of the objective; None: there is no estimate.
    """

    store: MirId
    partition: AttrRef | None
    label: str
    tuples: float | None
    bytes: float | None
    cost: float | None


Change = StepChange | StoreChange
#: A state of a probe order: starting alias, its substream, and the sub-join so far.
_State = tuple[Label, int, MirId]


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """The difference of two plans under one cost model.

    Attributes:
        added, removed, kept: probe steps, in order of their keys.
        built, dropped, retained: store copies, in order of store and partition attribute.
        cost_before, cost_after: costs of the whole plans; None: a step or copy has no estimate.
        assumed_widths: relations with an unknown width, for which :data:`DEFAULT_WIDTH` was used.
        notes: remarks for the reader, as sentences.
    """

    added: tuple[StepChange, ...]
    removed: tuple[StepChange, ...]
    kept: tuple[StepChange, ...]
    built: tuple[StoreChange, ...]
    dropped: tuple[StoreChange, ...]
    retained: tuple[StoreChange, ...]
    cost_before: float | None
    cost_after: float | None
    assumed_widths: tuple[RelationId, ...]
    notes: tuple[str, ...]

    @property
    def unchanged(self) -> bool:
        """Whether the plans have the same probe steps and store copies."""
        return not (self.added or self.removed or self.built or self.dropped)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the compared plans: its probe steps and store copies by key, with estimated costs.

    ``tuples`` and ``cost`` of a key are sums over all executed steps with this key.
    """

    steps: dict[StepKey, StepChange]
    copies: dict[Copy, StoreChange]
    cost: float | None


@dataclass(slots=True)
class _Pricing:
    """The cost model and tuple widths under which both plans are compared."""

    model: CostModel
    widths: Mapping[RelationId, float]
    assumed: set[RelationId] = field(default_factory=set)

    def copy(self, copy: Copy, mir: Mir | None) -> StoreChange:
        store, partition = copy
        owner, name = unqualified(store)
        text = qualified(owner, mir_label(mir.members) if mir else name)
        if partition is not None:
            text += f"[{partition.attribute}]"
        if mir is None:
            return StoreChange(store, partition, text, None, None, None)
        tuples = self.model.cardinality(mir)
        size = tuples * sum(self.width(r) for r in mir.relations)
        return StoreChange(store, partition, text, tuples, size, self.model.insert(mir))

    def width(self, relation: RelationId) -> float:
        if relation not in self.widths:
            self.assumed.add(relation)
        return self.widths.get(relation, DEFAULT_WIDTH)


def diff(
    before: Plan | Footprint,
    after: Plan | Footprint,
    queries: Sequence[JoinQuery],
    model: CostModel,
    *,
    before_queries: Sequence[JoinQuery] | None = None,
    before_model: CostModel | None = None,
    widths: Mapping[RelationId, float] | None = None,
) -> PlanDiff:
    """Compare two plans: the changes if ``after`` replaces ``before``.

    Args:
        queries: the queries of ``after``.
        model: prices both sides.
        before_queries: the queries of ``before`` that are still known (default: ``queries``).
        before_model: prices ``before`` if its parallelism differs from that of ``after``.
        widths: bytes per tuple of each relation; a tuple of an intermediate result has their sum.

    Raises:
        PlanError: a plan's goal is not one of its queries.
    """
    if before_queries is None:
        before_queries = queries
    pricing = _Pricing(model, widths or {})
    old_pricing = _Pricing(before_model or model, widths or {}, pricing.assumed)
    old = _side(before, before_queries, queries, old_pricing)
    new = _side(after, queries, before_queries, pricing)
    notes = []
    for name, side in (("old", old), ("new", new)):
        parts: list[Change] = [*side.steps.values(), *side.copies.values()]
        lost = sorted(p.label for p in parts if p.cost is None)
        if lost:
            notes.append(
                f"{len(lost)} parts of the {name} plan belong to queries that are no longer known "
                f"and have no estimate, such as {lost[0]}"
            )
    assumed = tuple(sorted(pricing.assumed))
    if assumed:
        notes.append(
            f"{DEFAULT_WIDTH:g} bytes per tuple assumed for {', '.join(assumed)}: "
            "their width was not given"
        )
    return PlanDiff(
        added=_only(new.steps, old.steps, sorted),
        removed=_only(old.steps, new.steps, sorted),
        kept=tuple(new.steps[k] for k in sorted(new.steps.keys() & old.steps.keys())),
        built=_only(new.copies, old.copies, _by_rank),
        dropped=_only(old.copies, new.copies, _by_rank),
        retained=tuple(new.copies[k] for k in _by_rank(new.copies.keys() & old.copies.keys())),
        cost_before=old.cost,
        cost_after=new.cost,
        assumed_widths=assumed,
        notes=tuple(notes),
    )


def _side(
    plan: Plan | Footprint, own: Sequence[JoinQuery], others: Sequence[JoinQuery], pricing: _Pricing
) -> _Side:
    """Steps and store copies of one of two compared plans, with estimated costs."""
    if isinstance(plan, Plan):
        return _plan_side(plan, own, pricing)
    return _footprint_side(plan, [*own, *others], pricing)


def _only(here: Mapping[Any, Any], there: Mapping[Any, Any], order: Any) -> tuple[Any, ...]:
    return tuple(here[k] for k in order(here.keys() - there.keys()))


def _by_rank(copies: Iterable[Copy]) -> list[Copy]:
    return sorted(copies, key=copy_rank)


def _plan_side(plan: Plan, queries: Sequence[JoinQuery], pricing: _Pricing) -> _Side:
    mirs = {m.id: m for m in plan.mirs}
    steps: dict[StepKey, StepChange] = {}
    prices = []
    for trail in trails(plan, queries).steps.values():
        price = step_price(trail, mirs, pricing.model)
        prices.append(price)
        sent = pricing.model.sent(
            trail.before, trail.start, trail.substream, broadcast=trail.step.broadcast
        )
        key = step_key(trail)
        if (same := steps.get(key)) is not None:
            sent, price = sent + (same.tuples or 0.0), price + (same.cost or 0.0)
        steps[key] = StepChange(key, _step_label(key, trail.head), sent, price)
    copies = {}
    for kept in plan.copies:
        copy = (MirId(qualified(kept.owner, kept.mir)), kept.partition)
        copies[copy] = pricing.copy(copy, mirs[kept.mir])
    prices += [c.cost or 0.0 for c in copies.values()]
    return _Side(steps, copies, fsum(prices))


def _footprint_side(found: Footprint, queries: Sequence[JoinQuery], pricing: _Pricing) -> _Side:
    model = pricing.model
    subs = SubJoins(queries)
    heads = _heads(found)
    kept: dict[MirId, list[AttrRef | None]] = {}
    for store, partition in _by_rank(found.copies):
        kept.setdefault(store, []).append(partition)
    mirs: dict[MirId, Mir] = {}
    steps: dict[StepKey, StepChange] = {}
    for key in sorted(found.steps):
        head = heads.get((key.start, key.substream, key.before))
        sent = price = query = None
        if head is not None:
            query = subs.containing(head | frozenset(key.members), key.after)
        if head is not None and query is not None:
            target = subs.of(query, frozenset(key.members))
            owner, start = unqualified(key.start)
            store = MirId(qualified(owner, key.target))
            mirs[store] = target
            routed = any(
                _routed(query, head, key, partition, target) for partition in kept.get(store, [])
            )
            probing = subs.of(query, head)
            sent = model.sent(probing, Label(start), key.substream, broadcast=not routed)
            price = model.step(
                probing,
                subs.of(query, head | frozenset(key.members)),
                key.target,
                Label(start),
                key.substream,
                broadcast=not routed,
            )
        steps[key] = StepChange(key, _step_label(key, head), sent, price)
    # Stores that no step probes are base stores; so are stores whose probes add one relation.
    joined: set[str] = {key.target for key in found.steps if len(key.members) > 1}
    copies = {}
    for copy in _by_rank(found.copies):
        name = unqualified(copy[0])[1]
        mir = mirs.get(copy[0]) or (None if name in joined else base_mir(RelationId(name)))
        copies[copy] = pricing.copy(copy, mir)
    parts: list[Change] = [*steps.values(), *copies.values()]
    prices = [p.cost for p in parts]
    known = [p for p in prices if p is not None]
    return _Side(steps, copies, fsum(known) if len(known) == len(prices) else None)


def _heads(found: Footprint) -> dict[_State, Labels]:
    """The aliases joined before and after each step of a footprint, found by following its steps.

    A step is the first of its path if no other step of the same starting alias leads to it; before
    it, the tuple consists of that alias only. Every step adds its members. Steps lead to larger
    sub-joins, so the loop needs at most as many rounds as the longest path has steps.
    """
    reached = {(k.start, k.substream, k.after) for k in found.steps}
    heads: dict[_State, Labels] = {
        (k.start, k.substream, k.before): frozenset({Label(unqualified(k.start)[1])})
        for k in sorted(found.steps)
        if (k.start, k.substream, k.before) not in reached
    }
    pending = sorted(found.steps)
    while pending:
        rest = []
        for key in pending:
            head = heads.get((key.start, key.substream, key.before))
            if head is None:
                rest.append(key)
            else:
                heads[key.start, key.substream, key.after] = head | frozenset(key.members)
        if len(rest) == len(pending):
            break
        pending = rest
    return heads


def _routed(
    query: JoinQuery, head: Labels, key: StepKey, partition: AttrRef | None, target: Mir
) -> bool:
    """Whether a step of a compared footprint knows the partition attribute of a store copy."""
    step = Step(key.target, key.members, partition, broadcast=False, cost=0.0, cardinality=0.0)
    return knows(query, head, step, {key.target: target})


def _step_label(key: StepKey, head: Labels | None) -> str:
    before = key.before if head is None else mir_label(sorted(head))
    start = f"{key.start}%{key.substream}" if key.substream else key.start
    return f"from {start}: {before} probes {mir_label(key.members)}"


def diff_document(found: PlanDiff, *, at_most: int | None = None) -> dict[str, Any]:
    """The difference of two plans as JSON: totals, and at most ``at_most`` entries per list.

    The most expensive entries come first; ``omitted`` is the number of entries cut off.
    """
    parts: dict[str, Sequence[Change]] = {
        "added": found.added,
        "removed": found.removed,
        "kept": found.kept,
        "built": found.built,
        "dropped": found.dropped,
        "retained": found.retained,
    }
    lists = {name: _diff_entries(part, at_most) for name, part in parts.items()}
    return {
        "unchanged": found.unchanged,
        "cost_before": found.cost_before,
        "cost_after": found.cost_after,
        "totals": {name: _totals(part) for name, part in parts.items()},
        "steps": {name: lists[name] for name in ("added", "removed", "kept")},
        "stores": {name: lists[name] for name in ("built", "dropped", "retained")},
        "omitted": sum(len(part) - len(lists[name]) for name, part in parts.items()),
        "notes": list(found.notes),
    }


def _diff_entries(part: Sequence[Change], at_most: int | None) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    ranked = sorted(part, key=lambda e: (-(e.cost or 0.0), -(e.tuples or 0.0), e.label))
    for entry in ranked[:at_most]:
        document: dict[str, Any] = {"label": entry.label, "tuples": entry.tuples}
        if isinstance(entry, StoreChange):
            document["bytes"] = entry.bytes
        document["cost"] = entry.cost
        entries.append(document)
    return entries


def _totals(part: Sequence[Change]) -> dict[str, Any]:
    """The number of changes in a list of a plan difference, and the sums of their estimates."""
    totals: dict[str, Any] = {
        "count": len(part),
        "tuples": sum(e.tuples or 0.0 for e in part),
        "cost": sum(e.cost or 0.0 for e in part),
    }
    stores = [e for e in part if isinstance(e, StoreChange)]
    if stores or not part:
        totals["bytes"] = sum(e.bytes or 0.0 for e in stores)
    return totals

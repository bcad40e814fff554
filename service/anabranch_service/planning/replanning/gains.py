"""Gain of a change of orders: work per row before and after, from measured periods.

Rulesets with equal orders are one (``contract.plans.orders``), in however many epochs they ran. So
an epoch that goes on with the orders of the one before adds to the same measurement.

A change costs more if a row costs more by the new orders than by the old ones, beyond
:data:`NOISE` and beyond what a row can have become dearer because stores have grown: a row that
joins ``n`` relations meets at most ``(1 + grown) ** (n - 1)`` times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.plans.steps import orders_digest
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.rest.planning.revisions import GainRecord

#: Periods that a measured effect needs on either side.
ENOUGH = 2
#: By how much new orders may seem to cost more before they are taken back: what arrives differs
#: from period to period.
NOISE = 0.05


class Orders(NamedTuple):
    """The orders of a ruleset.

    Attributes:
        joined: relations of its largest query.
    """

    digest: str
    queries: frozenset[str]
    joined: int


def orders_of(ruleset: Ruleset) -> Orders:
    """The orders of ``ruleset``."""
    joined = max((len(query.members) for query in ruleset.queries), default=1)
    return Orders(orders_digest(ruleset), frozenset(str(q.id) for q in ruleset.queries), joined)


@dataclass(frozen=True, slots=True)
class OrderChange:
    """A change of orders, of the same queries.

    Attributes:
        before: the newest ruleset with the old orders. ``after``: the oldest one with the new.
    """

    before: RulesetId
    after: RulesetId
    gain: GainRecord


def newest_change(
    interims: Sequence[Interim], orders: Mapping[RulesetId, Orders], *, timed: bool = False
) -> OrderChange | None:
    """The change that brought the newest period's orders; None: not measured enough.

    A period by several orders counts for neither side, nor does one in which probes were rationed,
    nor one before the newest drift: other data cost otherwise by any orders. The period that begins
    with a drift is enough for the old orders, because it ends early and is what the change answers.
    Orders that ran for less than two periods are passed over: the change is then from the last ones
    that ran longer.

    Args:
        interims: consecutive ones, the newest last. ``orders``: of their rulesets.
        timed: whether work is CPU seconds of steps and inserts instead of probes and matches.
    """
    pure = [_orders(one, orders) for one in interims]
    new = pure[-1] if pure else None
    if new is None:
        return None
    after: list[Interim] = []
    before: list[Interim] = []
    old, enough = new, ENOUGH
    for interim, found in zip(reversed(interims), reversed(pure), strict=True):
        if found is not None and found != old:
            if len(before) >= ENOUGH:
                break
            before, old = [], found
        if found is not None and _counts(interim):
            (after if found == new else before).append(interim)
        if interim.drifted:
            enough = 1
            break
    if len(before) < enough or len(after) < ENOUGH or old.queries != new.queries:
        return None
    gain = _gain(before, after, timed=timed)
    allowed = (1 + NOISE) * (1 + gain.grown) ** (new.joined - 1)
    lost = gain.after > gain.before * allowed
    last, first = before[0].rulesets[-1], after[-1].rulesets[0]
    return OrderChange(last, first, gain.model_copy(update={"lost": lost}))


def _orders(interim: Interim, orders: Mapping[RulesetId, Orders]) -> Orders | None:
    """The orders of all batches of the period; None: several, or unknown."""
    found = {orders.get(name) for name in interim.rulesets}
    return found.pop() if len(found) == 1 else None


def _counts(interim: Interim) -> bool:
    return bool(sum(interim.arrivals.values())) and not interim.rationed


def _gain(before: Sequence[Interim], after: Sequence[Interim], *, timed: bool) -> GainRecord:
    old, new = (
        sum(_work(one, timed=timed) for one in side) / sum(sum(o.arrivals.values()) for o in side)
        for side in (before, after)
    )
    both = {s for one in before for s in one.stores} & {s for one in after for s in one.stores}
    rows = [
        sum(size.rows for one in side for s, size in one.stores.items() if s in both) / len(side)
        for side in (before, after)
    ]
    return GainRecord(
        before=old,
        after=new,
        gain=1 - new / old if old else 0.0,
        periods=len(after),
        grown=max(rows[1] / rows[0] - 1, 0.0) if rows[0] else 0.0,
    )


def _work(interim: Interim, *, timed: bool) -> float:
    if timed:
        return interim.inserts.seconds + sum(s.counts.seconds for s in interim.steps)
    return sum(s.counts.probes + s.counts.matches for s in interim.steps)

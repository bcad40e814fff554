"""Measured gain of a change of probe orders: work per arriving row before and after the change.

Rulesets with equal probe orders count as one (``contract.plans.orders``), even across epochs.

A change has *lost* if rows cost more with the new orders than with the old ones, by more than two
allowances explain: :data:`NOISE`, and the growth of stores. If stores have grown by the fraction
``grown``, a row that joins ``n`` relations costs up to ``(1 + grown) ** (n - 1)`` times as much.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.plans.steps import orders_digest
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.rest.planning.revisions import GainRecord
from anabranch_service.registry.records import KeptRevision

#: Minimum number of periods before and after a change for its gain to count as measured.
ENOUGH = 2
#: Tolerated relative increase of the cost per row, before new orders are reverted: the arriving
#: tuples differ from period to period.
NOISE = 0.05


class Orders(NamedTuple):
    """Identity of a ruleset's probe orders.

    Attributes:
        joined: number of relations in the largest query.
    """

    digest: str
    queries: frozenset[str]
    joined: int


def orders_of(ruleset: Ruleset) -> Orders:
    """Return the digest of the probe orders of ``ruleset``, with its queries."""
    joined = max((len(query.members) for query in ruleset.queries), default=1)
    return Orders(orders_digest(ruleset), frozenset(str(q.id) for q in ruleset.queries), joined)


@dataclass(frozen=True, slots=True)
class OrderChange:
    """A change of probe orders, with unchanged queries.

    Attributes:
        before: newest ruleset with the old orders. ``after``: oldest ruleset with the new ones.
        old, new: digests of the orders.
    """

    before: RulesetId
    after: RulesetId
    old: str
    new: str
    gain: GainRecord

    def explained(
        self, records: Sequence[KeptRevision], ran: Collection[RulesetId]
    ) -> tuple[GainRecord, KeptRevision | None]:
        """Return the gain, with the gain predicted for the same change, and the revision that made
        the change if its gain was not known before: the newest one before :attr:`after` that led to
        the new orders.

        If other orders, which ran for too short a time to be measured, were in force between the
        old and the new ones, the predictions of all these revisions are combined. There is no
        prediction if one of the changes was made by an epoch's plan.

        Args:
            records: the revisions, oldest first. ``ran``: the rulesets of all batches.
        """
        names = {RulesetId(r.epoch, r.revision): r for r in records}
        changed, wanted, left, gain = None, self.new, 1.0, self.gain
        for name, record in reversed(names.items()):
            changes = record.orders == wanted != record.replaced
            if changes and wanted != self.old and name in ran and name <= self.after:
                wanted, left = record.replaced, left * (1 - record.predicted)
                changed = changed or record
        if changed is None or wanted != self.old:
            changed = names.get(self.after)
        else:
            baseline = changed.baseline if changed.replaced == self.old else gain.baseline
            gain = gain.model_copy(update={"baseline": baseline, "predicted": 1 - left})
        if changed is None or changed.measured is not None:
            return gain, None
        return gain, changed.model_copy(update={"measured": gain})


def newest_change(
    interims: Sequence[Interim], orders: Mapping[RulesetId, Orders], *, timed: bool = False
) -> OrderChange | None:
    """Return the change to the probe orders of the newest period; None if there is no change, or
    its effect was not measured long enough.

    Periods with several orders, rationed periods, and periods before the newest drift do not
    count. The period that ended with the drift alone suffices to measure the old orders. Orders
    that ran for less than two periods are skipped; the old orders are the last that ran longer.

    Args:
        interims: consecutive periods, the newest last. ``orders``: orders of their rulesets.
        timed: whether work is measured in CPU seconds, else in probes and matches.
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
        if found is not None and any(interim.arrivals.values()) and not interim.rationed:
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
    gain = gain.model_copy(update={"lost": lost, "baseline": str(last)})
    return OrderChange(last, first, old.digest, new.digest, gain)


def _orders(interim: Interim, orders: Mapping[RulesetId, Orders]) -> Orders | None:
    """Return the probe orders of all batches of a period; None if they differ or are unknown."""
    found = {orders.get(name) for name in interim.rulesets}
    return found.pop() if len(found) == 1 else None


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

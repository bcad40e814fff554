"""Excluded values: key values for which storing an intermediate result costs more than it saves.

A stored intermediate result ``M`` saves the probe steps that it replaces, and costs inserts of its
rows. Both differ by key value: rows with a value that is frequent in two members of ``M`` and rare
in other relations may fill the store, but are seldom probed. For each value ``v`` of a key that
joins all aliases of a query,

    gain(v) = sum over the aliases r outside M of (least(r, v) - least with M(r, v))
              - stored(M, v) - sum over the members s of M of upkeep(s, v)

in seconds. Here ``least`` is the cost of the cheapest probe order for tuples of ``r`` with the
value (:mod:`~anabranch_planner.skew.start_orders`), ``stored`` the cost of inserts into ``M``, and
``upkeep`` the cost of the probes that maintain ``M``. The values without positive gain are excluded
if this is cheaper than storing all values, and cheaper than storing none, by more than the fixed
cost of further substreams. The tuples of all aliases are then split, and in the program no tuple
with an excluded value probes an intermediate result by that key, or maintains ``M``
(:mod:`~anabranch_planner.cost.aside`). Per query only the most advantageous ``M`` is chosen.

Limits: the first :data:`MOST_QUERIES` queries with three to :data:`MOST_LABELS` aliases and a key
class over all of them. A result shared with another query is considered only if all aliases of that
query have the key, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.partial import values_of
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import AttrRef, JoinQuery, KeyClass, Label
from anabranch_contract.queries.mirs import Mir, restrict_classes
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.values import joined_columns
from anabranch_planner.skew.start_orders import StartOrders, Starts

Hashes = NDArray[np.uint64]
Costs = NDArray[np.float64]


#: Maximum number of aliases per query (all its sub-joins are examined), and of queries.
MOST_LABELS, MOST_QUERIES = 5, 8
#: Minimum saving, as a fraction of a query's cost, because the estimates have errors.
WORTH = 0.1


@dataclass(frozen=True, slots=True)
class Leaving:
    """Key values that an intermediate result should exclude, and the saving.

    Attributes:
        starts: the aliases of its query, and the key attribute of each.
        hashes: hashes of the values, sorted.
        saved: CPU seconds per unit of time, compared with the cheaper of storing all values and
            storing none; without fixed costs of calls.
        calls: fixed cost of one more substream of each alias.
        least: minimum saving for which values are excluded, fixed costs included.
    """

    starts: tuple[AttrRef, ...]
    type: str
    hashes: tuple[int, ...]
    saved: float
    calls: tuple[float, ...]
    least: float


def set_aside(
    starts: Starts, chosen: Sequence[Substreams], most: int, earlier: Iterable[Substreams] = ()
) -> tuple[Substreams, ...]:
    """``chosen``, extended by substreams of key values that stores should exclude; sorted.

    Args:
        starts: probe orders under a cost model in seconds.
        most: maximum number of substreams of an alias.
        earlier: the substreams in use: excluded values stay excluded unless other values save more
            by :data:`WORTH`.
    """
    functions = {one.start: one for one in chosen}
    before = {
        one.start: tuple(sorted(values_of(one, one.aside).hashes)) for one in earlier if one.aside
    }
    taken: set[Label] = set()
    ordered = sorted(starts.queries, key=lambda q: q.id)
    keyed = [(q, key) for q in ordered if (key := _key(q)) is not None]
    for query, key in keyed[:MOST_QUERIES]:
        found = _best(query, key, starts, before)
        if found is None or found.saved <= found.least:
            continue
        if taken & {ref.label for ref in found.starts}:
            continue
        made, calls = {}, 0.0
        for ref, call in zip(found.starts, found.calls, strict=True):
            there = functions.get(ref.label)
            one = _told_apart(there, ref, found, starts.model, query)
            if one is not None and one.count <= most:
                made[ref.label] = one
                calls += call * (one.count - (1 if there is None else there.count))
        if len(made) == len(found.starts) and found.saved - calls > found.least:
            functions |= made
            taken |= made.keys()
    return tuple(functions[label] for label in sorted(functions))


def _key(query: JoinQuery) -> KeyClass | None:
    """A key class with one attribute per alias; None if there is none, or for too many aliases."""
    if not 2 < len(query.labels) <= MOST_LABELS:
        return None
    labels = sorted(query.labels)
    return next((c for c in query.classes if sorted(m.label for m in c.members) == labels), None)


def _best(
    query: JoinQuery, whole: KeyClass, starts: Starts, before: dict[Label, tuple[int, ...]]
) -> Leaving | None:
    """The best values to exclude for ``query``, whose aliases the key class ``whole`` joins; None
    if no exclusion pays."""
    hashes = starts.model.values.frequent(starts.columns(query, whole.members[0]))
    if not len(hashes):
        return None
    goals = {m.label: starts.of(query, m, hashes) for m in whole.members}
    worth = WORTH * sum(float(goal.plain.sum()) for goal in goals.values())
    least = 0.0 if before.keys() & goals.keys() else worth
    found = []
    for size in range(2, len(query.labels)):
        for inside in combinations(sorted(query.labels), size):
            mir = starts.sub(query, inside)
            if _is_own(mir, whole, starts.queries):
                gain = _gain(mir, whole, goals, hashes, starts.model, least)
                if gain is not None:
                    found.append(_leaving(gain, whole, goals, hashes, worth, before))
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.saved, default=None)


def _is_own(mir: Mir, whole: KeyClass, queries: Sequence[JoinQuery]) -> bool:
    """Whether ``whole`` is a key of all aliases in each query that contains ``mir``."""
    members = frozenset(mir.members)
    return all(
        {m.label for c in query.classes if set(c.members) & set(whole.members) for m in c.members}
        >= set(query.labels)
        for query in queries
        if members < set(query.labels) and restrict_classes(query.classes, members) == mir.classes
    )


def _gain(
    mir: Mir,
    whole: KeyClass,
    goals: dict[Label, StartOrders],
    hashes: Hashes,
    model: CostModel,
    least: float,
) -> Costs | None:
    """Saving per key value if its rows are stored in ``mir``; last: all values not in ``hashes``.
    None if the total is at most ``least`` even without maintenance costs."""
    outside = [goal for label, goal in goals.items() if label not in mir.members]
    through: Costs = np.sum([goal.plain - goal.least(mir) for goal in outside], axis=0)
    if through.sum() <= least:
        return None
    upkeep = sum(goals[label].upkeep(mir) for label in mir.members)
    key = next(m for m in whole.members if m.label in mir.members)
    weights = model.values.weights(joined_columns(mir, key), hashes)
    rows = model.added(mir) * weights / max(float(weights.sum()), 1e-300)
    gain: Costs = through - upkeep - model.stored(1.0, mir) * rows
    return gain


def _leaving(
    gain: Costs,
    whole: KeyClass,
    goals: dict[Label, StartOrders],
    hashes: Hashes,
    worth: float,
    before: dict[Label, tuple[int, ...]],
) -> Leaving | None:
    """The best set of key values to exclude; None if no exclusion pays.

    Args:
        worth: minimum saving of a set that differs from ``before``.
    """
    calls = tuple(goals[ref.label].calls for ref in whole.members)
    against = max(float(gain.sum()), 0.0)

    def leaving(left: NDArray[np.bool_], least: float) -> Leaving:
        # Values outside ``hashes`` are never excluded.
        saved = float(gain[:-1][~left].sum() + gain[-1]) - against
        values = tuple(hashes[left].tolist())
        return Leaving(whole.members, whole.type, values, saved, calls, least)

    best = leaving(gain[:-1] <= 0, worth)
    known = {before.get(ref.label) for ref in whole.members}
    if len(known) == 1 and (now := known.pop()):
        stays = leaving(np.isin(hashes, np.array(now, np.uint64)), 0.0)
        if stays.hashes and stays.saved >= best.saved - worth:
            return stays
    return best if best.hashes else None


def _told_apart(
    function: Substreams | None, ref: AttrRef, leaving: Leaving, model: CostModel, query: JoinQuery
) -> Substreams | None:
    """``function`` with substreams for excluded values; None if it splits by another attribute."""
    left = set(leaving.hashes)
    whole: list[set[int]] = []
    if function is not None:
        if function.attribute != ref.attribute or function.others > 1:
            return None
        whole = [set(group) for group in function.groups]
    parts = [(left.difference(*whole), True)]
    parts += [(group & left, True) for group in whole]
    parts += [(group - left, False) for group in whole]
    groups = {tuple(sorted(part)): aside for part, aside in parts if part}
    ordered = sorted(groups)
    arriving = model.values.arriving((query.relation_of(ref.label).id, ref.attribute))
    shares = [round(sum(arriving.get(h, 0.0) for h in group), 6) for group in ordered]
    return Substreams(
        ref.label,
        ref.attribute,
        leaving.type,
        tuple(ordered),
        shares=(round(max(1.0 - sum(shares), 0.0), 6), *shares),
        aside=tuple(number for number, group in enumerate(ordered, 1) if groups[group]),
    )

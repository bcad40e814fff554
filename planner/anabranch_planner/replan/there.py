"""The stores of a running ruleset, and the queries and larger stores that may probe them.

A revision of the running ruleset opens no store. So an intermediate result can serve a query only
if its store has the columns that the query reads, and all rows within the query's time bounds. The
same holds for a larger intermediate result that is maintained from it. And a tuple may probe it
only by key values that the store keeps (:mod:`anabranch_contract.plans.partial`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from anabranch_contract.plans.partial import kept_values, values_of
from anabranch_contract.plans.ruleset import Ruleset, StoreSpec
from anabranch_contract.queries.joins import AttrRef, JoinQuery, KeyClass, Label, QueryId
from anabranch_contract.queries.mirs import Mir, MirId
from anabranch_planner.cost.columns import Kept, behind, joined_outside, read_by_query
from anabranch_planner.cost.timing import PairBounds, pair_bounds


def owners(running: Ruleset) -> dict[QueryId, str]:
    """Query -> owner of the stores that it probes; "": stores shared by queries."""
    owner_of = {s.id: s.owner for s in running.stores}
    edges = {p.out: owner_of[p.store] for p in running.probe_rules}
    return {rule.query: edges.get(rule.edge, "") for rule in running.output_rules}


class StoresThere:
    """The running stores of one owner, which alone a revision may probe (``StoresKept``)."""

    def __init__(self, running: Ruleset, owner: str = "") -> None:
        self._stream_of = {r.id: r.stream for r in running.relations}
        self._derived = {(stream, text): expr for stream, text, expr in running.derived}
        self._stores: dict[MirId, list[StoreSpec]] = {}
        for store in running.stores:
            if store.owner == owner:
                self._stores.setdefault(store.mir, []).append(store)
        self._fits: dict[tuple[str, MirId], bool] = {}
        self._functions = {one.start: one for one in running.substreams}

    def partitions(self, mir: Mir) -> tuple[AttrRef | None, ...]:
        """Partition attributes of the running copies of ``mir``'s store; empty: no copies."""
        copies = self._stores.get(mir.id, [])
        return tuple(None if s.partition is None else s.partition[0] for s in copies)

    def serves(self, query: JoinQuery, mir: Mir) -> bool:
        """Whether ``query`` may probe the store of the intermediate result ``mir``."""
        key = f"query {query.id}", mir.id
        if key not in self._fits:
            need = read_by_query(query, mir, self._stream_of, self._derived)
            self._fits[key] = self._fit(mir, need, pair_bounds(query))
        return self._fits[key]

    def feeds(self, larger: Mir, mir: Mir) -> bool:
        """Whether orders that maintain ``larger`` may probe the store of its sub-join ``mir``."""
        key = f"store {larger.id}", mir.id
        if key not in self._fits:
            kept, inside = self._stores.get(larger.id, []), frozenset(mir.members)
            need = {(label, c) for s in kept for label, c in s.columns if label in inside}
            refs = joined_outside(larger.classes, mir)
            need |= behind(refs, mir, self._stream_of, self._derived)
            self._fits[key] = bool(kept) and self._fit(mir, need, _bounds(kept[0]))
        return self._fits[key]

    def holds(self, classes: Sequence[KeyClass], mir: Mir, origin: tuple[Label, int]) -> bool:
        """Whether the running store of ``mir`` has all rows that tuples of ``origin`` (alias and
        substream) can match by the join keys ``classes``."""
        kept = [s.kept for s in self._stores.get(mir.id, []) if s.kept is not None]
        if not kept:
            return True
        label, number = origin
        function = self._functions.get(label)
        if function is None:
            return False
        values, key = values_of(function, [number]), AttrRef(label, function.attribute)
        joined = [c.members for c in classes if c.type == function.type and key in c.members]
        return all(
            one.type == function.type
            and any(one.attribute in members for members in joined)
            and kept_values(one).has(values)
            for one in kept
        )

    def _fit(self, mir: Mir, need: set[Kept], bounds: PairBounds) -> bool:
        """Whether a store's running copies have the columns ``need`` and loose enough bounds."""
        copies = self._stores.get(mir.id, [])
        return bool(copies) and all(
            need <= set(store.columns)
            and all(bounds.get(pair, math.inf) <= reach for pair, reach in _bounds(store).items())
            for store in copies
        )


def _bounds(store: StoreSpec) -> PairBounds:
    return {(b.earlier, b.later): b.micros for b in store.bounds}

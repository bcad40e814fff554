"""Latest per key: removal of partial results that have superseded tuples as members.

A tuple is superseded once its stream has another tuple with the same key and a greater event time,
whichever of the two arrived first (``semantics.md``, "Latest per key"). The superseding tuple may
fail a query's conditions or be invisible to the query. So complete results probe all tuples stored
since the stream was declared to keep the latest, including this batch's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch_contract.plans.ruleset import KeyPart, LatestRule, QuerySpec, TimeBound
from anabranch_contract.queries.joins import AttrRef, Label
from anabranch_runtime.columns.arrays import Bools
from anabranch_runtime.index.matching import ANY, TooManyPairs
from anabranch_runtime.probe.probe import Lookup, Prober, Target
from anabranch_runtime.state.coverage import Tile
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU

_LATER = Label("later")


@dataclass(slots=True)
class Latest:
    """Removes results with superseded tuples.

    Attributes:
        tiles: stream -> stores and batches with tuples that may supersede (``ProbeScope.latest``).
    """

    prober: Prober
    tiles: Mapping[str, Sequence[Tile]]
    _targets: dict[Label, tuple[LatestRule, Target] | None] = field(default_factory=dict)

    def kept(self, query: QuerySpec) -> list[Label]:
        """Return the aliases of ``query`` whose superseded tuples (latest per key) don't count."""
        routes = self.prober.layout.routes
        return [
            label
            for _, label, _ in query.members
            if routes.has_superseded(query, label) and self._target(label) is not None
        ]

    def current(self, partial: Partial, label: Label) -> Partial:
        """Return ``partial`` without results with a superseded member ``label``."""
        found = self._target(label)
        if found is None or not partial.length:
            return partial
        return partial.where(~self._superseded(partial, label, *found))

    def _target(self, label: Label) -> tuple[LatestRule, Target] | None:
        """Return rule and target of a probe for newer tuples of ``label``; None: no such rule."""
        if label not in self._targets:
            layout = self.prober.layout
            stream = layout.relations[layout.relation_of[label]].stream
            rules = (r for r in layout.ruleset.latest_rules if r.stream == stream)
            rule = next(rules, None) if layout.streams[stream].latest else None
            self._targets[label] = None if rule is None else (rule, _target(rule, label))
        return self._targets[label]

    def _superseded(
        self, partial: Partial, label: Label, rule: LatestRule, target: Target
    ) -> Bools:
        # A tuple that is a member of many results is looked up once.
        _, first, back = np.unique(partial.sigma(label), return_index=True, return_inverse=True)
        tuples = partial.take(first.astype(np.int32))
        gone: Bools = self._has_later(tuples, label, rule, target)[back]
        return gone

    def _has_later(self, tuples: Partial, label: Label, rule: LatestRule, target: Target) -> Bools:
        most = self.prober.most if tuples.length > 1 else ANY
        found = np.zeros(tuples.length, np.bool_)
        try:
            # Of two rows of a table, that of a later batch, or later in the same batch, is newer.
            table = self.prober.layout.streams[rule.stream].is_table
            bounds = () if table else (TimeBound(_LATER, label, -1),)
            lookup = Lookup(self.prober, tuples, target, bounds)
            for tile in self.tiles[rule.stream]:
                for group, probes in lookup.routed(tile):
                    pairs = lookup.match(tile, group, probes, None, most)
                    if pairs is not None:
                        positions, rows = pairs
                        later = rows.int64(TAU) > tuples.tau(label)[positions]
                        if table:
                            batch = tuples.sigma(label)[positions] >> OFFSET_BITS
                            other = rows.int64(SIGMA) >> OFFSET_BITS
                            later = (other > batch) | ((other == batch) & later)
                        found[positions[later]] = True
            self.prober.reads.keep()
        except TooManyPairs:
            self.prober.reads.forget()
            middle = tuples.length // 2
            halves = (tuples.cut(0, middle), tuples.cut(middle, tuples.length))
            return np.concatenate([self._has_later(h, label, rule, target) for h in halves])
        return found


def _target(rule: LatestRule, label: Label) -> Target:
    stored = Label(rule.relation)
    key = [KeyPart(AttrRef(label, c), AttrRef(stored, c), kind) for c, kind in rule.key]
    return Target(rule.relation, key, (_LATER,), (), whenever=True)

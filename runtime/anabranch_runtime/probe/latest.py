"""Streams that keep the latest per key: superseded tuples of partial results.

A tuple is superseded once another of its stream has arrived that has its key and a greater event
time, in whatever order they came (``semantics.md``, "Latest per key"). The superseding tuple may
fail a query's conditions or be invisible to it, so complete results are probed against everything
that the stream has stored since it keeps the latest, this batch included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch_contract.plans.ruleset import KeyPart, LatestRule, TimeBound
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
    """Looks for later tuples.

    Attributes:
        tiles: stream -> where they are (``ProbeScope.latest``).
    """

    prober: Prober
    tiles: Mapping[str, Sequence[Tile]]
    _targets: dict[Label, tuple[LatestRule, Target] | None] = field(default_factory=dict)

    def kept(self, labels: Iterable[Label]) -> list[Label]:
        """Labels whose streams keep the latest."""
        return [label for label in labels if self._target(label) is not None]

    def current(self, partial: Partial, label: Label) -> Partial:
        """``partial`` less the results whose member ``label`` has been superseded."""
        found = self._target(label)
        if found is None or not partial.length:
            return partial
        return partial.where(~self._superseded(partial, label, *found))

    def _target(self, label: Label) -> tuple[LatestRule, Target] | None:
        """The store with the tuples that may supersede ``label``'s; None: its stream keeps all."""
        if label not in self._targets:
            layout = self.prober.layout
            stream = layout.relations[layout.relation_of[label]].stream
            rule = next((r for r in layout.ruleset.latest_rules if r.stream == stream), None)
            self._targets[label] = None if rule is None else (rule, _target(rule, label))
        return self._targets[label]

    def _superseded(
        self, partial: Partial, label: Label, rule: LatestRule, target: Target
    ) -> Bools:
        # Each tuple once: it may be in many results.
        _, first, back = np.unique(partial.sigma(label), return_index=True, return_inverse=True)
        tuples = partial.take(first.astype(np.int32))
        gone: Bools = self._has_later(tuples, label, rule, target)[back]
        return gone

    def _has_later(self, tuples: Partial, label: Label, rule: LatestRule, target: Target) -> Bools:
        most = self.prober.most if tuples.length > 1 else ANY
        found = np.zeros(tuples.length, np.bool_)
        try:
            # The place in a batch's input decides between rows of a table that arrive in one batch.
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

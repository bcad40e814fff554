"""Look-ahead filters: tuples that no later probe can match are dropped before a probe.

A probe rule lists the later probes that its tuples need to match (``ProbeRule.ahead``,
``contract.plans.ahead``). The filter searches the later probe's tiles for the tuple's key only.
A tuple whose key is found is kept, though arrival order, time bounds, filters or a comparison of
values may still reject it; so no tuple of a result is dropped. The filter keeps all tuples if a
store has gaps, since the members of the MIR are probed for these, and if a key can't be evaluated,
since the later probe fails then.

With several hosts the filter is off, because most of a store is on other hosts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import Presence, ProbeRule
from anabranch_runtime.epochs.access import known_attributes
from anabranch_runtime.expressions.failures import EVALUATION
from anabranch_runtime.index.matching import mark_present
from anabranch_runtime.probe.probe import Lookup, Prober, Target
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.storage.partial import Partial

#: Key of a look-ahead filter: MIR or relation, store, build attributes with key types.
_Question = tuple[str, str, frozenset[tuple[str, str]]]


class PresenceTest:
    """The look-ahead filters of one batch in one task."""

    def __init__(self, prober: Prober, access: Mapping[str, Access]) -> None:
        """``access``: edge -> tiles and gaps of its probe."""
        self._prober, self._access = prober, access
        self._edges: dict[_Question, str] | None = None

    def passing(self, partial: Partial, rule: ProbeRule) -> Partial:
        """Return the tuples of ``partial`` that pass all look-ahead filters of ``rule``."""
        name = ("passing", rule.ahead)
        found: Partial | None = partial.lookups.get(name)
        if found is None:
            found, meter = partial, self._prober.meters[rule.out]
            for asked in rule.ahead:
                found = found.where(self._present(found, asked))
                if not found.length:
                    break
            meter.asked += partial.length
            meter.dropped += partial.length - found.length
            # Cached, since other probe rules of the edge may have the same filters.
            partial.lookups[name] = found
        return found

    def _present(self, partial: Partial, asked: Presence) -> NDArray[np.bool_] | None:
        """Return the mask of tuples whose key is stored; None: all tuples stay, as undecided."""
        tiles = self._tiles(asked)
        if tiles is None:
            return None
        try:
            return self._marked(partial, asked, tiles).view(np.bool_)
        except EVALUATION:
            return None
        finally:
            # Look-ups of the look-ahead filter don't count as look-ups of probes.
            self._prober.reads.forget()

    def _marked(
        self, partial: Partial, asked: Presence, tiles: tuple[Tile, ...]
    ) -> NDArray[np.uint8]:
        layout = self._prober.layout
        target = Target(asked.mir, asked.key, (), ())
        lookup = Lookup(self._prober, partial, target, ())
        marks = np.zeros(partial.length, np.uint8)
        for tile in tiles:
            store = layout.stores[tile.store]
            for group, probes in lookup.routed(tile):
                indexes = group.indexes(
                    store.index_key(asked.key),
                    lambda r, store=store: [  # type: ignore[misc]
                        layout.stored(store, r, r.segment.rows, k.build) for k in asked.key
                    ],
                )
                mark_present(probes, indexes, marks)
        return marks

    def _tiles(self, asked: Presence) -> tuple[Tile, ...] | None:
        """Return the tiles of the later probe; None if it has gaps or is unknown."""
        if self._edges is None:
            rules = self._prober.layout.rules.values()
            self._edges = {(r.mir, r.store, known_attributes(r.key)): r.out for r in rules}
        edge = self._edges.get((asked.mir, asked.store, known_attributes(asked.key)))
        access = None if edge is None else self._access.get(edge)
        return None if access is None or access.gaps else access.tiles

"""Looking ahead: tuples that must fail at a later probe are dropped before anything fans out.

A probe rule lists the partners without which a tuple is useless (``ProbeRule.ahead``,
``contract.plans.ahead``). The stores of the later probe are searched for the key, over the same
tiles. A tuple with the key may still fail by arrival, time bounds, filters or values, and is kept;
so no tuple of a result is dropped. The check is also skipped where it would be uncertain: for a
store with gaps, which its parts answer, and for a key that can't be evaluated, which fails later at
the probe itself.

Where several hosts share stores the check is off, because most of a store is elsewhere.
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

#: The store that is asked and the attributes of the key.
_Question = tuple[str, str, frozenset[tuple[str, str]]]


class PresenceTest:
    """Asks ahead for the tuples of one batch in one task."""

    def __init__(self, prober: Prober, access: Mapping[str, Access]) -> None:
        """``access``: edge -> how its probe is answered."""
        self._prober, self._access = prober, access
        self._edges: dict[_Question, str] | None = None

    def passing(self, partial: Partial, rule: ProbeRule) -> Partial:
        """The tuples of ``partial`` for which all is there that ``rule`` asks for."""
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
            # Other rules of the edge may ask for the same.
            partial.lookups[name] = found
        return found

    def _present(self, partial: Partial, asked: Presence) -> NDArray[np.bool_] | None:
        """Mask of tuples with a partner by the key; None: undecidable."""
        tiles = self._tiles(asked)
        if tiles is None:
            return None
        try:
            return self._marked(partial, asked, tiles).view(np.bool_)
        except EVALUATION:
            return None
        finally:
            # These are no reads of a probe.
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
        """Tiles with all rows that the later probe may find; None where they are not all stored."""
        if self._edges is None:
            rules = self._prober.layout.rules.values()
            self._edges = {(r.mir, r.store, known_attributes(r.key)): r.out for r in rules}
        edge = self._edges.get((asked.mir, asked.store, known_attributes(asked.key)))
        access = None if edge is None else self._access.get(edge)
        return None if access is None or access.gaps else access.tiles

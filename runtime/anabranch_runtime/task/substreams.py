"""Division of starting tuples into substreams, since some first probes are for some tuples only.

The starting tuples of a label are divided once per chunk, by the hash of one key attribute
(``Ruleset.substreams``). Later probes do not depend on substreams.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import AttrRef
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.task.stores import probed_keys

_HALF = np.uint64(32)


class DividedTuples:
    """Starting tuples of one label, divided into substreams on first use.

    Attributes:
        whole: the tuples of all substreams.
    """

    def __init__(self, layout: Layout, whole: Partial) -> None:
        self.whole = whole
        self._layout = layout
        self._numbers: NDArray[np.int64] | None = None
        self._parts: dict[tuple[int, ...], Partial] = {(): whole}

    def of(self, substreams: tuple[int, ...]) -> Partial:
        """Return the tuples of ``substreams``; all tuples if it is empty."""
        found = self._parts.get(substreams)
        if found is None:
            if self._numbers is None:
                function = self._layout.substreams[self.whole.start]
                self._numbers = numbers(self._layout, self.whole, function)
            mask = np.isin(self._numbers, substreams)
            found = self._parts[substreams] = self.whole.where(mask)
        return found


def numbers(layout: Layout, starts: Partial, function: Substreams) -> NDArray[np.int64]:
    """Return the substream's number for each tuple of ``starts``."""
    attribute = AttrRef(function.start, function.attribute)
    # A key that can't be evaluated fails later, in the rules that need it. The other tuples need
    # the right substream, since some stores have only the values of some substreams.
    keys = probed_keys(layout, starts, attribute, function.type)
    others = np.uint64(function.others)
    found = ((keys.hashes >> _HALF) * others >> _HALF).astype(np.int64)
    listed = [(h, n) for n, group in enumerate(function.groups, function.others) for h in group]
    if listed:
        listed.sort()
        known = np.array([h for h, _ in listed], np.uint64)
        at = np.searchsorted(known, keys.hashes)
        at[at == len(known)] = 0
        numbered = np.array([n for _, n in listed], np.int64)
        found = np.where(known[at] == keys.hashes, numbered[at], found)
    if keys.valid is not None:
        found[~keys.valid] = 0
    return found

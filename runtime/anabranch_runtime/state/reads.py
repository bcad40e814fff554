"""Reads of stores as the state keeps them: by store and index."""

from __future__ import annotations

from collections.abc import Container, Mapping

from anabranch_contract.protocol.reads import Reads

#: Store -> index -> counts.
StoreReads = Mapping[str, dict[str, Reads]]


def sum_reads(
    known: StoreReads, *more: StoreReads, stores: Container[str]
) -> dict[str, dict[str, Reads]]:
    """Sum the reads of ``stores``, dropping all others; entries without additions are shared."""
    found: dict[str, dict[str, Reads]] = {}
    taken = {s: r for s, r in known.items() if s in stores}
    for one in more:
        for store, by_index in one.items():
            if store not in stores:
                continue
            if store not in found:
                found[store] = dict(taken.get(store, {}))
            mine = found[store]
            for index, counts in by_index.items():
                mine[index] = mine.get(index, Reads()) + counts
    return taken | found

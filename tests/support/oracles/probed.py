"""Results and counts of probes, in forms by which two implementations of probing are compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.protocol.reads import Reads
from anabranch_runtime.probe.probe import Prober
from anabranch_runtime.storage.partial import Partial


def tuples(made: Partial | None) -> list[list[int]]:
    """Return the tuples of a partial result, as their members' sigmas, sorted."""
    if made is None or not made.length:
        return []
    sigmas = np.stack([made.sigma(label) for label in sorted(made.place)], axis=1)
    return sorted(map(list, sigmas.tolist()))


def counts(meter: EdgeStatistics) -> EdgeStatistics:
    """Return the counts that must be equal; numbers of look-ups may differ, because of filters."""
    return replace(meter, looked=0, seconds=0.0)


def read(prober: Prober) -> dict[str, dict[str, Reads]]:
    """Return the counts of look-ups in stores that must be equal."""
    prober.reads.keep()
    return {
        store: {
            index: replace(one, filtered=0, by_partition=0, by_time=0, looked=places(one))
            for index, one in by_index.items()
        }
        for store, by_index in prober.reads.found.items()
    }


def places(one: Reads) -> int:
    """Return the sum over tuples of the tile's segments, searched or skipped; implementations skip
    for different reasons.
    """
    return one.looked + one.filtered + one.by_partition + one.by_time

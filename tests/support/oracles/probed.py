"""Results and counts of probes, in a form that compares two ways of probing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch_contract.protocol.reads import Reads
from anabranch_runtime.probe.probe import Prober
from anabranch_runtime.probe.reads import EdgeMeter
from anabranch_runtime.storage.partial import Partial


def tuples(made: Partial | None) -> list[list[int]]:
    """The tuples of a partial result, by their members' sigmas, in order."""
    if made is None or not made.length:
        return []
    sigmas = np.stack([made.sigma(label) for label in sorted(made.place)], axis=1)
    return sorted(map(list, sigmas.tolist()))


def counts(meter: EdgeMeter) -> EdgeMeter:
    """Counts that must agree; ways of probing differ in their look-ups, because of filters."""
    return replace(meter, looked=0, seconds=0.0)


def read(prober: Prober) -> dict[str, dict[str, Reads]]:
    """The same of lookups in stores."""
    prober.reads.keep()
    return {
        store: {
            index: replace(one, filtered=0, by_partition=0, by_time=0, looked=places(one))
            for index, one in by_index.items()
        }
        for store, by_index in prober.reads.found.items()
    }


def places(one: Reads) -> int:
    """Segments of the tile, summed over tuples, looked into or not: each way has its reasons not
    to, partitions among them.
    """
    return one.looked + one.filtered + one.by_partition + one.by_time

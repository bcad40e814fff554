"""Inclusion probabilities of the results of a rationed batch (``sinks.sampling``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.index.ranks import WHOLE
from anabranch_runtime.rations.limits import RationLimits
from anabranch_runtime.rations.shares import Ranks
from anabranch_runtime.storage.partial import Partial


def kept_by(
    partial: Partial,
    query: QuerySpec,
    layout: Layout,
    rationing: RationLimits,
    ranks: Ranks,
    count: int,
) -> list[pa.Array]:
    """The columns of ``count`` slots for results of ``query`` that were kept in ranks' batch."""
    stream = layout.stream(partial.start)
    found: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    for _, label, _ in query.members:
        goal = rationing.goals.get((query.id, label))
        if goal is None or layout.stream(label) != stream:
            continue
        ranking, most = goal
        here = partial.batch(label) == ranks.batch
        share = np.where(here, most / WHOLE, 1.0)
        found.append((ranks.of(partial, label, ranking), share))
    for n, (rank, share) in enumerate(found):
        # Members with one rank are kept together, by the least of their shares.
        for other, theirs in found[:n]:
            same = (rank == other) & (share < 1) & (theirs < 1)
            np.minimum(theirs, share, out=theirs, where=same)
            share[same] = 1.0
    columns = list[pa.Array]()
    for rank, share in found:
        columns += [pa.array(rank), pa.array(share)]
    nothing = [pa.array(np.zeros(partial.length, np.int64)), pa.array(np.ones(partial.length))]
    return columns + nothing * (count - len(found))

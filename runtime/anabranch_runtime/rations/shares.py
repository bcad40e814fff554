"""Load shedding per tuple: comparison of tuples' ranks (hashes) with limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.plans.rations import Ranking
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.joins import Label
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.index.ranks import WHOLE, ranks
from anabranch_runtime.rations.limits import Limits, RationLimits
from anabranch_runtime.storage.partial import Partial


@dataclass(frozen=True, slots=True)
class Ranks:
    """Computes ranks of tuples for load shedding: hashes of a key and the batch, as integers.

    Attributes:
        batch: number of the batch; None: each tuple's batch of arrival.
    """

    layout: Layout
    batch: int | None = None

    def below(self, partial: Partial, label: Label, limits: Limits) -> NDArray[np.bool_]:
        """Return the mask of tuples whose member ``label`` has a rank that passes ``limits``."""
        if limits is None:
            return np.ones(partial.length, np.bool_)
        found = np.zeros(partial.length, np.bool_)
        for ranking, most in limits:
            found |= self.of(partial, label, ranking) < most
        return found

    def reached(
        self, partial: Partial, label: Label, limits: Iterable[tuple[Ranking, int]]
    ) -> NDArray[np.bool_]:
        """Return the mask of tuples whose member ``label`` has at least the rank of one limit."""
        found = np.zeros(partial.length, np.bool_)
        for ranking, least in limits:
            if least <= 0:
                return np.ones(partial.length, np.bool_)
            found |= self.of(partial, label, ranking) >= least
        return found

    def of(self, partial: Partial, label: Label, ranking: Ranking) -> NDArray[np.int64]:
        """Compute the rank of each tuple of ``partial``, from its member ``label``."""
        event_time = self.layout.streams[self.layout.stream(label)].event_time

        def column(name: str) -> pa.Array:
            # In an intermediate result, event times of members are not ordinary columns.
            if name == event_time:
                return pa.array(partial.tau(label)).view(pa.timestamp("us"))
            return partial.column(label, name)

        batch = partial.batch(label) if self.batch is None else self.batch
        return ranks(ranking, column, partial.length, batch)


class Wanted:
    """Tuples of a partial result that pass filters for load shedding, cached by filter.

    Attributes:
        partial: all tuples of the partial result.
    """

    def __init__(self, partial: Partial, met: Limits, ranks: Ranks) -> None:
        """Create the cache; ``met``: a filter that all tuples of ``partial`` pass already."""
        self.partial, self._met, self._ranks = partial, met, ranks
        #: Limits -> filtered tuples, shared by edges with equal limits, with their cached keys.
        self._found: dict[Limits, Partial] = {met: partial, None: partial}

    def among(self, some: Partial) -> Wanted:
        """Return such a cache for ``some`` of the tuples of the partial result."""
        return self if some is self.partial else Wanted(some, self._met, self._ranks)

    def by(self, limits: Limits) -> Partial:
        """Return the tuples whose ranks pass the filter ``limits``."""
        found = self._found.get(limits)
        if found is None:
            mask = self._ranks.below(self.partial, self.partial.start, limits)
            found = self._found[limits] = self.partial.where(mask)
        return found


def kept_by(
    partial: Partial,
    query: QuerySpec,
    layout: Layout,
    rationing: RationLimits,
    ranks: Ranks,
    count: int,
) -> list[pa.Array]:
    """Return ``count`` pairs of columns: a member's rank, and the share below which it is kept."""
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
        # Members with equal ranks are kept or withheld together, by the least of their rations.
        for other, theirs in found[:n]:
            same = (rank == other) & (share < 1) & (theirs < 1)
            np.minimum(theirs, share, out=theirs, where=same)
            share[same] = 1.0
    columns = list[pa.Array]()
    for rank, share in found:
        columns += [pa.array(rank), pa.array(share)]
    nothing = [pa.array(np.zeros(partial.length, np.int64)), pa.array(np.ones(partial.length))]
    return columns + nothing * (count - len(found))

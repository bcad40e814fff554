"""Partners found by a step of a probe order: per edge, or by the set of visited streams.

Streams are numbers from 0, sets of streams bit masks. The scalar form (``one``) serves algorithms
that walk along an order, the vector form (``many``) algorithms that visit all sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.errors import StatisticsError

Floats: TypeAlias = NDArray[np.float64]
Masks: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Match:
    """Expected matches of one query of a backend.

    Attributes:
        gamma: the share of queries that find a partner, 0 to 1 (Eq. 9 of dpPick).
        mu: matched records per query that finds one (Eq. 10).

    Raises:
        StatisticsError: ``gamma`` is not a share, or ``mu`` is negative or not finite.
    """

    gamma: float
    mu: float

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise _bad("gamma", self.gamma, "give a share from 0 to 1")
        if not 0 <= self.mu < math.inf:
            raise _bad("mu", self.mu, "give a finite number of 0 or more")


def _bad(field: str, value: float, remedy: str) -> StatisticsError:
    return StatisticsError(f"bad-{field}", f"{field} is {value}", field=field, remedy=remedy)


class Figures(Protocol):
    """The figures of every step."""

    @property
    def by_start(self) -> bool:
        """Whether they depend on the stream that the order starts from."""

    @property
    def by_side(self) -> bool:
        """Whether they depend on the probing side among the visited streams."""

    def one(self, start: int, visited: int, side: int, target: int) -> Match:
        """Matches of the step that probes ``target`` from ``side``, which ``visited`` contains."""

    def many(self, start: int, visited: Masks, side: int, allowed: Flags) -> tuple[Floats, Floats]:
        """``gamma`` and ``mu`` from each of the k sets (rows) to each of the n streams (columns).

        Entries that are not ``allowed`` (k x n) may be anything finite.
        """


@dataclass(frozen=True, slots=True)
class EdgeFigures:
    """Figures per directed edge (probing side, probed side), as the paper has them."""

    streams: int
    matches: Mapping[tuple[int, int], Match]

    @property
    def by_start(self) -> bool:
        """Never."""
        return False

    @property
    def by_side(self) -> bool:
        """Always."""
        return True

    def one(self, start: int, visited: int, side: int, target: int) -> Match:
        """Of the edge, whatever the set."""
        return self.matches[side, target]

    def many(self, start: int, visited: Masks, side: int, allowed: Flags) -> tuple[Floats, Floats]:
        """Of all edges from ``side``, as one row for all sets."""
        none = Match(0.0, 0.0)
        row = [self.matches.get((side, r), none) for r in range(self.streams)]
        return np.array([[m.gamma for m in row]]), np.array([[m.mu for m in row]])


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """Figures from the sizes of partial results, which depend on the set of joined streams.

    A step from ``V`` to ``r`` finds ``size(V + r) / size(V)`` partners in the mean. The number of
    partners of one query is taken for Poisson distributed (rows fall on keys independently, as
    the cost model's selectivities assume too): ``gamma = 1 - exp(-mean)``, ``mu = mean / gamma``.
    The other simple choice, ``gamma = min(1, mean)``, holds where all keys have equally many rows.
    The tuple-at-a-time cost needs ``gamma * mu`` only, so it is the same for both.

    Attributes:
        size: (start, set) -> partial results over the set, per unit of time; called only with
            connected sets that contain the start.
        starts: whether ``size`` depends on the start; otherwise it is called with start 0.
    """

    streams: int
    size: Callable[[int, int], float]
    starts: bool = False

    @property
    def by_start(self) -> bool:
        """As declared."""
        return self.starts

    @property
    def by_side(self) -> bool:
        """Never."""
        return False

    def one(self, start: int, visited: int, side: int, target: int) -> Match:
        """By the sizes before and after the step."""
        before = self._size(start, visited)
        mean = self._size(start, visited | 1 << target) / before if before > 0 else 0.0
        gamma = -math.expm1(-mean)
        return Match(gamma, mean / gamma if gamma > 0 else 1.0)

    def many(self, start: int, visited: Masks, side: int, allowed: Flags) -> tuple[Floats, Floats]:
        """By the sizes before and after each step; every set's size is computed once."""
        after = visited[:, None] | (np.int64(1) << np.arange(self.streams, dtype=np.int64))
        wanted = np.zeros(1 << self.streams, dtype=np.bool_)
        wanted[after[allowed]] = True
        wanted[visited] = True
        masks = np.flatnonzero(wanted)
        sizes = np.zeros(1 << self.streams)
        sizes[masks] = [self._size(start, mask) for mask in masks.tolist()]
        before = sizes[visited][:, None]
        mean = np.where(allowed & (before > 0), sizes[after], 0.0) / np.where(
            before > 0, before, 1.0
        )
        gamma = -np.expm1(-mean)
        return gamma, np.where(gamma > 0, mean / np.where(gamma > 0, gamma, 1.0), 1.0)

    def _size(self, start: int, mask: int) -> float:
        return self.size(start if self.starts else 0, mask)

"""Selectivities of the steps of a probe order: per edge, or by the set of visited streams.

Streams are numbers from 0, sets of streams bit masks. The scalar form (``one``) is for algorithms
that follow an order step by step, the vector form (``many``) for algorithms that visit all sets.
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
    """Expected matches of one look-up in the backend (store) of a stream.

    Attributes:
        gamma: the share of look-ups that find a partner, 0 to 1 (Eq. 9 of dpPick).
        mu: matched records per look-up that finds a partner (Eq. 10).

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
    """Interface: the matches of every step of a probe order."""

    @property
    def by_start(self) -> bool:
        """Whether matches depend on the stream that the order starts from."""

    @property
    def by_side(self) -> bool:
        """Whether matches depend on the probing side among the visited streams."""

    def one(self, start: int, visited: int, side: int, target: int) -> Match:
        """Return the matches of the step from ``side``, a stream of ``visited``, to ``target``."""

    def many(self, start: int, visited: Masks, side: int, allowed: Flags) -> tuple[Floats, Floats]:
        """Return ``gamma`` and ``mu`` of the steps from each of k sets (rows) to each of n streams
        (columns).

        Entries that are not ``allowed`` (k x n) may have any finite value.
        """


@dataclass(frozen=True, slots=True)
class EdgeFigures:
    """Matches per directed edge (probing side, probed side), as in the paper."""

    streams: int
    matches: Mapping[tuple[int, int], Match]

    @property
    def by_start(self) -> bool:
        """Return False: matches do not depend on the start."""
        return False

    @property
    def by_side(self) -> bool:
        """Return True: matches depend on the probing side."""
        return True

    def one(self, start: int, visited: int, side: int, target: int) -> Match:
        """Return the matches of the edge, which are the same for every set."""
        return self.matches[side, target]

    def many(self, start: int, visited: Masks, side: int, allowed: Flags) -> tuple[Floats, Floats]:
        """Return gamma and mu of all edges from ``side``, as one row that is valid for all sets."""
        none = Match(0.0, 0.0)
        row = [self.matches.get((side, r), none) for r in range(self.streams)]
        return np.array([[m.gamma for m in row]]), np.array([[m.mu for m in row]])


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """Matches from the sizes of partial results, which depend on the set of joined streams.

    A step from ``V`` to ``r`` finds ``size(V + r) / size(V)`` partners in the mean. The number of
    partners of one look-up is assumed to be Poisson distributed (keys of rows are independent, as
    in the cost model's selectivities): ``gamma = 1 - exp(-mean)``, ``mu = mean / gamma``. The other
    simple choice, ``gamma = min(1, mean)``, would be right if all keys had equally many rows. The
    tuple-at-a-time cost needs ``gamma * mu`` only, so it is the same for both.

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
        """Whether matches depend on the start: as given."""
        return self.starts

    @property
    def by_side(self) -> bool:
        """Return False: matches do not depend on the probing side."""
        return False

    def one(self, start: int, visited: int, side: int, target: int) -> Match:
        """Return the matches of a step, from the sizes before and after it."""
        before = self._size(start, visited)
        mean = self._size(start, visited | 1 << target) / before if before > 0 else 0.0
        gamma = -math.expm1(-mean)
        return Match(gamma, mean / gamma if gamma > 0 else 1.0)

    def many(self, start: int, visited: Masks, side: int, allowed: Flags) -> tuple[Floats, Floats]:
        """Return gamma and mu of many steps, from the sizes of partial results around each."""
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

"""Partners of the tuples of the next period: rows stored now, and rows still to arrive.

**Setting.** The next period is [0, 1]. In it ``a_j`` tuples of relation ``j`` arrive, evenly. Of
the rows held when it begins, ``n_j(x)`` are at most ``x`` old. In event time the period has the
length ``E``. A tuple of ``i`` that arrives at ``t`` meets rows of ``j`` that are at most ``reach_j
= D[j][i]`` older than the tuple, and at least ``gap_j = max(0, -D[i][j])``. It can meet held rows
only up to the age ``past_j``, the smaller of ``reach_j`` and the age of the oldest row; these rows
are assumed to be spread evenly over ``past_j``. With all times in units of ``E``:

    W_j(t) = n_j(past_j) * |[max(t - reach_j, -past_j), min(t - gap_j, 0)]| / past_j
           + a_j * max(0, min(reach_j, t) - gap_j)

(``|.|``: the length of an interval, 0 of an empty one). So the combinations of the sub-join ``X``
that the tuples of ``i`` complete in the period are

    P_i(X) = f(X) * a_i * integral over t in [0, 1] of  product over j != i of  W_j(t).

**The integral.** ``W_j`` is continuous, and linear between the break points ``gap_j``, ``reach_j``,
``gap_j - past_j`` and ``reach_j - past_j``. Between neighbouring break points a factor is ``w (1 -
s) + w' s``, where ``s`` runs from 0 to 1, and ``w`` and ``w'`` are its values at the ends. So the
product of ``m`` factors is a sum of terms ``c_k s^k (1 - s)^(m - k)`` with positive ``c_k``, whose
integrals are ``c_k / ((m + 1) * binomial(m, k))``. This is exact, without cancellation.

**Special cases.** With no held rows and ``E`` as long as the history, the result is the share of
:mod:`~anabranch_planner.cost.timing`, whose period is the whole history. With windows shorter than
the history and constant rates ``lambda_j``, ``W_j = lambda_j * T_j`` at any time, for any length of
the period: PMJoin's model after its windows have filled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch_contract.queries.joins import Label


@dataclass(frozen=True, slots=True)
class Supply:
    """Rows of a relation that tuples of the forecast period may join with.

    Attributes:
        held: number of rows stored at the beginning of the period.
        arriving: number of rows that arrive in the period.
        span: event time that the held rows span, in microseconds; None: unknown, no row is too old.
        recent: age profile: (microseconds, held rows at most that old), ascending. It is linear
            between these points, from 0 to the oldest row.
    """

    held: float
    arriving: float
    span: float | None
    recent: tuple[tuple[float, float], ...] = ()

    def younger(self, age: float) -> float:
        """Number of a relation's stored rows that are at most ``age`` microseconds old."""
        if self.span is None or age >= self.span:
            return self.held
        before, less = 0.0, 0.0
        for at, count in (*self.recent, (self.span, self.held)):
            here, rows = min(at, self.span), min(max(count, less), self.held)
            if age < here:
                return less + (rows - less) * (age - before) / (here - before)
            before, less = here, rows
        return self.held


def met(
    members: Sequence[Label],
    bounds: Mapping[tuple[Label, Label], int],
    supplies: Mapping[Label, Supply],
    extent: float | None,
) -> tuple[float, ...]:
    """Partner combinations that an average tuple of each member meets: the mean over the period of
    the product of ``W_j(t)`` over ``j != i``.

    Args:
        members: the aliases of a sub-join.
        bounds: (earlier, later) -> microseconds, closed under shortest paths.
        extent: the period's microseconds of event time; None: unknown, no bound excludes any row.

    >>> from anabranch_contract.queries.joins import Label
    >>> R, S = Label("R"), Label("S")
    >>> met((R, S), {}, {R: Supply(0.0, 8.0, None), S: Supply(0.0, 6.0, None)}, None)
    (3.0, 4.0)
    >>> met((R, S), {}, {R: Supply(30.0, 8.0, None), S: Supply(0.0, 6.0, None)}, None)
    (3.0, 34.0)
    """
    if len(members) == 1:
        return (1.0,)
    found = []
    known: dict[tuple[_Piece, ...], float] = {}
    for last in members:
        pieces, rows = [], 1.0
        for other in members:
            if other == last:
                continue
            supply, held = supplies[other], supplies[other].held
            reach, gap, past = math.inf, 0.0, math.inf
            if extent is not None and supply.span is not None:
                most, least = bounds.get((other, last)), bounds.get((last, other), 0)
                age = supply.span if most is None else min(supply.span, most)
                held, past = supply.younger(age), age / extent
                reach = math.inf if most is None else most / extent
                gap = max(0, -least) / extent
            total = held + supply.arriving
            rows *= total
            pieces.append((held / total if total > 0 else 0.0, reach, gap, past))
        key = tuple(sorted(pieces))
        if key not in known:
            known[key] = _mean(key)
        found.append(rows * known[key])
    return tuple(found)


#: Arguments of one ``W_j`` (see the module): fraction of held rows, ``reach``, ``gap``, ``past``.
_Piece = tuple[float, float, float, float]


def _mean(pieces: Sequence[_Piece]) -> float:
    """Integral over [0, 1] of the product of piecewise linear functions (see the module)."""
    breaks = {0.0, 1.0}
    for _, reach, gap, past in pieces:
        if past < math.inf:
            breaks.update(p for p in (gap, reach, gap - past, reach - past) if 0.0 < p < 1.0)
    total = 0.0
    for low, high in pairwise(sorted(breaks)):
        terms = [1.0]
        for piece in pieces:
            first, last = _within(piece, low), _within(piece, high)
            terms = [
                left * first + right * last
                for left, right in zip([*terms, 0.0], [0.0, *terms], strict=True)
            ]
        degree = len(pieces)
        area = math.fsum(c / math.comb(degree, k) for k, c in enumerate(terms))
        total += (high - low) * area / (degree + 1)
    return total


def _within(piece: _Piece, at: float) -> float:
    """Fraction of a relation's stored rows that a tuple arriving at time ``at`` can meet."""
    held, reach, gap, past = piece
    if past == math.inf or (reach == math.inf and gap == 0.0):
        return held + (1.0 - held) * at
    old = max(0.0, min(at - gap, 0.0) - max(at - reach, -past)) / past if past > 0 else 0.0
    new = max(0.0, min(reach, at) - gap)
    return held * old + (1.0 - held) * new

"""Parameters of smoothing, fitted to many series at once by least squares.

The fit minimises the sum of weight times squared one-step error over ``alpha``, ``beta``, for a
damped trend ``phi``, and the initial path of a series.

**The path, exactly.** The errors are linear in the values and in the path (:mod:`.holt`): with
``r``, ``x1``, ``x2`` the errors, begun at zero, of the series, of the constant 1 and of the path
that rises by 1, they are ``r - first * x1 - rise * x2``. So for given parameters the best path is a
weighted regression on two columns, and the least sum follows from six sums of products. Where the
two columns are collinear, the path goes through the first two values.

**The parameters, by a grid.** All series are smoothed with each pair of :data:`LEVELS` squared,
closer together near 0, where smoothing changes most; for a damped trend with each pair of
:data:`DAMPED_LEVELS` and each of :data:`DAMPING`. The best point of a series is then compared with
its eight neighbours at half the distance, and once more at a quarter, on the path that it has; the
path is fitted again at the end. The sum has several valleys for many series: the grid finds the
valley, the refinement walks in it. Nothing iterates until it converges, and the work is the same
for every series.

**Refits.** The sums are kept by stretches of time (:func:`refits`), so one pass also fits the first
4, 8, 16, 32, 48, ... values alone, as a rolling origin needs (:mod:`.backtest`). Refits are points
of the grid, not refined.

Every operation is element by element or a sum along time, and none is left to a library of linear
algebra: what a series gets does not depend on the others of its batch, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from anabranch_planner.forecast.grid import Array
from anabranch_planner.forecast.holt import (
    Path,
    Smoothing,
    differenced,
    filtered,
    paths,
    powers_until,
    thetas,
)

#: Roots of the values of alpha, and of beta, on the grid of the linear trend.
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
#: The same on that of the damped trend.
DAMPED_LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Values of phi of a damped trend: the range that R. J. Hyndman and G. Athanasopoulos advise
#: ("Forecasting: Principles and Practice", 3rd edition, section 8.2).
DAMPING = (0.8, 0.9, 0.98)
#: Distances of the refinement, in roots.
STEPS = (0.1, 0.05)
#: After how many values parameters are fitted at first; then again after each stretch.
FIRST = (4, 8, 16)
STRETCH = 16
#: The determinant of a regression, relative to its diagonal's product, that counts as 0.
SINGULAR = 1e-10


def _grid(roots: Sequence[float], phis: Sequence[float]) -> Smoothing:
    """Each pair of alpha and beta, shape (pair, 1), for each phi, shape (phi, 1)."""
    # Where the level does not follow errors, beta has no effect.
    pairs = [(a, b) for a, b in product(roots, roots) if a or not b]
    alpha, beta = np.square(pairs).T[:, :, None]
    return Smoothing(alpha, beta, np.array(phis)[:, None])


_GRID = _grid(LEVELS, (1.0,))
_DAMPED_GRID = _grid(DAMPED_LEVELS, DAMPING)
#: Neighbours of a point: multiples of a distance in alpha and in beta.
_WAYS = np.array([p for p in product((-1, 0, 1), repeat=2) if any(p)]).T[:, :, None]


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters and path of each series.

    Attributes:
        smoothing: arrays of shape (series,), or (refit, series).
        path: where each series begins; arrays of the same shape.
        squares: sum of weight times squared error; the same shape.
    """

    smoothing: Smoothing
    path: Path
    squares: Array

    def at(self, refit: int) -> Fit:
        """That refit of several."""
        s, p = self.smoothing, self.path
        return Fit(
            Smoothing(s.alpha[refit], s.beta[refit], s.phi[refit]),
            Path(p.first[refit], p.rise[refit]),
            self.squares[refit],
        )

    def or_better(self, other: Fit) -> Fit:
        """Per element the one with the smaller sum; this one where they are equal."""
        better = other.squares < self.squares

        def pick(mine: Array, its: Array) -> Array:
            return np.where(better, its, mine)

        s, p = self.smoothing, self.path
        t, q = other.smoothing, other.path
        return Fit(
            Smoothing(pick(s.alpha, t.alpha), pick(s.beta, t.beta), pick(s.phi, t.phi)),
            Path(pick(p.first, q.first), pick(p.rise, q.rise)),
            pick(self.squares, other.squares),
        )


def refits(count: int) -> tuple[int, ...]:
    """After how many values parameters are fitted; all ``count`` are the last.

    >>> refits(60)
    (4, 8, 16, 32, 48, 60)
    """
    later = (*FIRST, *range(FIRST[-1] + STRETCH, count, STRETCH))
    return (*(n for n in later if n < count), count)


def fit(values: Array, weights: Array, damped: bool) -> tuple[Fit, Fit]:
    """The best parameters of each series, and what earlier origins would have taken.

    Args:
        values: shape (time, series), at least two values each; finite, and so small that the sum
            of their squares is, too.
        weights: the same shape, not negative; a value of weight 0 has no error that counts.
        damped: whether ``phi`` is fitted; otherwise it is 1.

    Returns:
        The refined fit to all values; the fits of the grid after each of :func:`refits`.
    """
    ends = refits(len(values))
    origin = values[0]
    rest = values - origin
    found = _best(rest, weights, _DAMPED_GRID if damped else _GRID, ends)
    coarse = found.at(-1)
    best = _refined(rest, weights, coarse)
    single = Smoothing(best.alpha[None], best.beta[None], best.phi[None])
    last = coarse.or_better(_best(rest, weights, single, ends[-1:]).at(0))
    return _moved(last, origin), _moved(found, origin)


def _refined(values: Array, weights: Array, coarse: Fit) -> Smoothing:
    """The best parameters on a finer grid around ``coarse``, with its paths."""
    best, squares, series = coarse.smoothing, coarse.squares, np.arange(values.shape[1])
    z = differenced(values - paths(len(values), coarse.path, best.phi), best.phi)[:, None, :]
    errors = np.empty((len(values), _WAYS.shape[1], len(series)))
    for step in STEPS:
        alpha, beta = (
            np.square(np.clip(np.sqrt(centre) + way * step, 0.0, 1.0))
            for centre, way in zip((best.alpha, best.beta), _WAYS, strict=True)
        )
        filtered(z, *thetas(Smoothing(alpha, beta, best.phi)), errors)
        sums = (weights[:, None, :] * errors * errors).sum(axis=0)
        chosen = sums.argmin(axis=0)
        better = sums[chosen, series] < squares
        squares = np.where(better, sums[chosen, series], squares)
        best = Smoothing(
            np.where(better, alpha[chosen, series], best.alpha),
            np.where(better, beta[chosen, series], best.beta),
            best.phi,
        )
    return best


def _moved(found: Fit, origin: Array) -> Fit:
    """The same fit of series that are higher by ``origin``."""
    path = Path(found.path.first + origin, found.path.rise)
    return Fit(found.smoothing, path, found.squares)


def _best(values: Array, weights: Array, tried: Smoothing, ends: Sequence[int]) -> Fit:
    """The best of several parameters for each series, after each of ``ends``.

    Each pair of ``tried.alpha`` and ``tried.beta``, of shape (pair, width), is tried with each
    ``tried.phi``, of shape (phi, width). The width is the number of series, or 1: where all series
    have the same candidates, they have the two columns in common.
    """
    errors, width = _errors(values, tried)
    count = values.shape[1]
    if (weights == weights[:, :1]).all():
        # Products of the two columns are then common to all series; each is what it was.
        weights = weights[:, :1]
    sums = [np.zeros(()) for _ in range(6)]
    refitted = []
    begin = 0
    for end in ends:
        e, w = errors[begin:end], weights[begin:end, None, :]
        r, x1, x2 = e[..., :count], e[..., count : count + width], e[..., count + width :]
        wr = w * r
        pairs = ((wr, r), (wr, x1), (wr, x2), (w, x1 * x1), (w, x1 * x2), (w, x2 * x2))
        sums = [total + (a * b).sum(axis=0) for total, (a, b) in zip(sums, pairs, strict=True)]
        refitted.append(_regressed(values, sums, tried))
        begin = end
    return _stacked(refitted)


def _errors(values: Array, tried: Smoothing) -> tuple[Array, int]:
    """Errors begun at zero: of the series, of the constant 1 and of the path that rises by 1.

    Returns:
        Shape (time, candidate, columns); how many columns the constant has, and the path as many.
    """
    (length, count), width = values.shape, tried.alpha.shape[1]
    phi = tried.phi
    rising = powers_until(np.arange(length, dtype=np.float64)[:, None, None], phi)
    own = np.broadcast_to(values[:, None, :], (length, len(phi), count))
    columns = np.concatenate([own, np.ones_like(rising), rising], axis=2)

    def spread(parameter: Array) -> Array:
        own = np.broadcast_to(parameter, (*parameter.shape[:-1], count))
        return np.concatenate([own, parameter, parameter], axis=-1)

    z = differenced(columns, spread(phi))[:, :, None, :]
    each = Smoothing(tried.alpha, tried.beta, phi[:, None, :])
    theta1, theta2 = (spread(theta) for theta in thetas(each))
    errors = np.empty((length, *theta1.shape))
    filtered(z, theta1, theta2, errors)
    return errors.reshape(length, -1, columns.shape[2]), width


def _regressed(values: Array, sums: Sequence[Array], tried: Smoothing) -> Fit:
    """The best candidate of each series by the six sums, with its path."""
    rr, r1, r2, x11, x12, x22 = sums
    diagonal = x11 * x22
    determinant = diagonal - x12 * x12
    regular = determinant > SINGULAR * diagonal
    divisor = np.where(regular, determinant, 1.0)
    first = np.where(regular, (x22 * r1 - x12 * r2) / divisor, values[0])
    rise = np.where(regular, (x11 * r2 - x12 * r1) / divisor, values[1] - values[0])
    squares = rr - first * r1 - rise * r2
    if not regular.all():
        # Not at the minimum: the full quadratic.
        full = rr - 2 * (first * r1 + rise * r2)
        full += first * (first * x11 + 2 * rise * x12) + rise * rise * x22
        squares = np.where(regular, squares, full)
    best = squares.argmin(axis=0)
    series = np.arange(values.shape[1])
    shape = (len(tried.phi), len(tried.alpha), len(series))
    alpha, beta, phi = (
        np.broadcast_to(tuned, shape)[best // shape[1], best % shape[1], series]
        for tuned in (tried.alpha, tried.beta, tried.phi[:, None, :])
    )
    return Fit(
        Smoothing(alpha, beta, phi),
        Path(first[best, series], rise[best, series]),
        squares[best, series],
    )


def _stacked(found: Sequence[Fit]) -> Fit:
    return Fit(
        Smoothing(
            np.stack([f.smoothing.alpha for f in found]),
            np.stack([f.smoothing.beta for f in found]),
            np.stack([f.smoothing.phi for f in found]),
        ),
        Path(np.stack([f.path.first for f in found]), np.stack([f.path.rise for f in found])),
        np.stack([f.squares for f in found]),
    )

"""Smoothing parameters, fitted to many series at once by least squares.

The fit minimises the weighted sum of squared one-step errors over ``alpha``, ``beta``, ``phi``
(only for a damped trend), and the initial path (first value and first increase) of a series.

**The path, exactly.** The errors are linear in the values and in the path (:mod:`.holt`). Let
``r``, ``x1`` and ``x2`` be the errors, begun at zero, of the series, of the constant 1, and of a
path that rises by 1 per period. Then the series' errors are ``r - first * x1 - rise * x2``. So for
given parameters the best path is a weighted regression on two columns, and the least sum follows
from six sums of products. For collinear columns the path goes through the first two values.

**The parameters, by a grid.** The grid has all pairs of squares of :data:`LEVELS`, which are denser
near 0, where smoothing changes most. For a damped trend it has pairs of :data:`DAMPED_LEVELS` with
each of :data:`DAMPING`. The best grid point of a series is then compared with its eight neighbours
at half the distance, and again at a quarter, with the path unchanged; finally the path is fitted
again. For many series the sum has several valleys: the grid finds the valley, and the refinement
descends in it. There is no iteration to convergence, and the work is equal for all series.

**Refits.** Sums are kept per stretch of time (:func:`refits`). So a single pass also fits the first
4, 8, 16, 32, 48, ... values alone, as a rolling origin needs (:mod:`.backtest`). The parameters of
such a refit are grid points, without refinement.

Every operation is elementwise or a sum along time, without a linear algebra library. So the result
for a series is bit for bit the same whatever other series are fitted with it.
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

#: Square roots of the grid's values of alpha and beta for the linear trend.
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
#: Square roots of the grid's values of alpha and beta for the damped trend: a coarser grid.
DAMPED_LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Values of phi of a damped trend (Hyndman & Athanasopoulos, Forecasting, 3rd ed., 8.2).
DAMPING = (0.8, 0.9, 0.98)
#: Step sizes of the refinement, in square roots of alpha and beta.
STEPS = (0.1, 0.05)
#: Numbers of values after which parameters are fitted; further numbers are multiples of the last.
FIRST = (4, 8, 16)
STRETCH = 16
#: Ratio of the determinant to the diagonal's product below which a regression is singular.
SINGULAR = 1e-10


def _grid(roots: Sequence[float], phis: Sequence[float]) -> Smoothing:
    """Grid of smoothing parameters: pairs of alpha and beta, shape (pair, 1); phi, (phi, 1)."""
    # If alpha is 0, beta has no effect.
    pairs = [(a, b) for a, b in product(roots, roots) if a or not b]
    alpha, beta = np.square(pairs).T[:, :, None]
    return Smoothing(alpha, beta, np.array(phis)[:, None])


_GRID = _grid(LEVELS, (1.0,))
_DAMPED_GRID = _grid(DAMPED_LEVELS, DAMPING)
#: Offsets from a grid point to its eight neighbours in (alpha, beta), in units of the step size.
_WAYS = np.array([p for p in product((-1, 0, 1), repeat=2) if any(p)]).T[:, :, None]


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted smoothing parameters and initial path (first value and increase) of each series.

    Attributes:
        smoothing: arrays of shape (series,), or (refit, series).
        path: initial paths; arrays of the same shape.
        squares: weighted sum of squared errors; the same shape.
    """

    smoothing: Smoothing
    path: Path
    squares: Array

    def at(self, refit: int) -> Fit:
        """The fit to the first values of each series, the number ``refit`` in :func:`refits`."""
        s, p = self.smoothing, self.path
        return Fit(
            Smoothing(s.alpha[refit], s.beta[refit], s.phi[refit]),
            Path(p.first[refit], p.rise[refit]),
            self.squares[refit],
        )

    def or_better(self, other: Fit) -> Fit:
        """Per series, the fit with the smaller squared error; this fit if they are equal."""
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
    """Numbers of first values after which parameters are fitted; the last is ``count``.

    >>> refits(60)
    (4, 8, 16, 32, 48, 60)
    """
    later = (*FIRST, *range(FIRST[-1] + STRETCH, count, STRETCH))
    return (*(n for n in later if n < count), count)


def fit(values: Array, weights: Array, damped: bool) -> tuple[Fit, Fit]:
    """Fit each series' smoothing parameters to all its values, and to its first 4, 8, 16, ...
    values (:func:`refits`), for forecasts from an earlier origin.

    Args:
        values: shape (time, series), with at least two values each; sums of squares are finite.
        weights: the same shape, not negative; the errors of values with weight 0 are ignored.
        damped: whether ``phi`` is fitted; otherwise it is 1.

    Returns:
        The fit to all values, refined, with arrays of shape (series,); and the unrefined fits to
        the first values, with arrays of shape (refit, series).
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
    """Better smoothing parameters than ``coarse`` from finer grids, with the same paths."""
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
    """The fit ``found``, converted to series whose values are all greater by ``origin``."""
    path = Path(found.path.first + origin, found.path.rise)
    return Fit(found.smoothing, path, found.squares)


def _best(values: Array, weights: Array, tried: Smoothing, ends: Sequence[int]) -> Fit:
    """The best parameters of each series among ``tried``, for its first ``ends`` values each.

    Candidates combine each pair of ``tried.alpha`` and ``tried.beta``, of shape (pair, width), with
    each ``tried.phi``, of shape (phi, width). The width is the number of series, or 1 if all series
    have the same candidates, which then share the errors of the constant and of the line.
    """
    errors, width = _errors(values, tried)
    count = values.shape[1]
    if (weights == weights[:, :1]).all():
        # If all series have equal weights, compute the sums over the two regressors only once.
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
    return Fit(
        Smoothing(
            np.stack([f.smoothing.alpha for f in refitted]),
            np.stack([f.smoothing.beta for f in refitted]),
            np.stack([f.smoothing.phi for f in refitted]),
        ),
        Path(np.stack([f.path.first for f in refitted]), np.stack([f.path.rise for f in refitted])),
        np.stack([f.squares for f in refitted]),
    )


def _errors(values: Array, tried: Smoothing) -> tuple[Array, int]:
    """One-step errors of the series, of the constant 1, and of the line that rises by 1.

    Returns:
        Errors of shape (time, candidate, column); and the number of columns per initial path.
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
    """The best of the parameters ``tried`` per series, by weighted regression on the path."""
    rr, r1, r2, x11, x12, x22 = sums
    diagonal = x11 * x22
    determinant = diagonal - x12 * x12
    regular = determinant > SINGULAR * diagonal
    divisor = np.where(regular, determinant, 1.0)
    first = np.where(regular, (x22 * r1 - x12 * r2) / divisor, values[0])
    rise = np.where(regular, (x11 * r2 - x12 * r1) / divisor, values[1] - values[0])
    squares = rr - first * r1 - rise * r2
    if not regular.all():
        # For collinear regressors the path is not a minimum, so evaluate the full quadratic.
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

"""Holt's linear trend and the damped trend: level and trend of many series at once.

With one-step errors ``e_t = y_t - (l_{t-1} + phi * b_{t-1})`` both methods are

    l_t = l_{t-1} + phi * b_{t-1} + alpha * e_t                                     (level)
    b_t = phi * b_{t-1} + alpha * beta * e_t                                        (trend)
    y(t + h) = l_t + (phi + phi^2 + ... + phi^h) * b_t                              (forecast)

Holt's method has ``phi = 1``. Sources: C. C. Holt, "Forecasting seasonals and trends by
exponentially weighted moving averages", ONR Memorandum 52, 1957 (reprinted in International Journal
of Forecasting 20, 2004); for the damped trend E. S. Gardner and E. McKenzie, "Forecasting trends in
time series", Management Science 31, 1985; for the form with errors R. J. Hyndman et al.,
"Forecasting with Exponential Smoothing", Springer 2008, section 2.5.

Horizons need not be whole. The sum of powers is ``phi * (1 - phi^h) / (1 - phi)``, or ``h`` for
``phi = 1``; this increases with ``h``, and equals the sum for every whole ``h``.

The errors alone follow a recursion in the data (Hyndman et al., section 11.1: ARIMA(1, 1, 2)),

    e_t = z_t - theta1 * e_{t-1} - theta2 * e_{t-2},
    z_t = y_t - (1 + phi) * y_{t-1} + phi * y_{t-2},
    theta1 = alpha + alpha * beta * phi - 1 - phi,   theta2 = phi * (1 - alpha),

where terms before the first value are 0. :mod:`.fitting` uses this recursion, because it takes four
operations per value; level and trend follow from the errors (:func:`smooth`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch_planner.forecast.grid import Array


@dataclass(frozen=True, slots=True)
class Smoothing:
    """Smoothing parameters of several series; arrays of one shape, with an element per series.

    Attributes:
        alpha: fraction of an error that the level adopts, in [0, 1].
        beta: fraction of the level's change that the trend adopts, in [0, 1].
        phi: fraction of a trend that remains per period, in (0, 1]; 1: linear trend.
    """

    alpha: Array
    beta: Array
    phi: Array


@dataclass(frozen=True, slots=True)
class Path:
    """Initial path of a series without noise: its first value and its first increase.

    With the level ``l`` and the trend ``b`` before the first value, ``first = l + phi * b`` and
    ``rise = phi^2 * b``: these are the forecast of the first value, and of the increase after it.

    Attributes:
        first: first value, in the series' unit; an element per series.
        rise: first increase per period, in the same unit; an element per series.
    """

    first: Array
    rise: Array


@dataclass(frozen=True, slots=True)
class Smoothed:
    """Result of smoothing several series.

    Attributes:
        errors: errors of the one-step forecasts; shape (time, series).
        levels: level after each value; shape (time, series).
        steps: expected increase until the next period, ``phi * b_t``; the same shape.
    """

    errors: Array
    levels: Array
    steps: Array


def thetas(smoothing: Smoothing) -> tuple[Array, Array]:
    """Coefficients ``theta1`` and ``theta2`` of the module's recursion for one-step errors."""
    alpha, beta, phi = smoothing.alpha, smoothing.beta, smoothing.phi
    return alpha + alpha * beta * phi - 1 - phi, phi * (1 - alpha)


def differenced(values: Array, phi: Array | float) -> Array:
    """Differenced series ``z_t`` of ``values`` (see the module's formula), along the first axis."""
    z = values.copy()
    z[1:] -= (1 + phi) * values[:-1]
    z[2:] += phi * values[:-2]
    return z


def filtered(z: Array, theta1: Array, theta2: Array, errors: Array) -> None:
    """Compute one-step errors from the differenced series ``z`` into ``errors``; time is axis 0."""
    shape = errors.shape[1:]
    # The coefficient of the older error first, in the order of ``errors``.
    coefficients = np.stack([np.broadcast_to(theta, shape) for theta in (theta2, theta1)])
    products = np.empty_like(coefficients)
    older, newer = products
    errors[:1] = z[:1]
    errors[1:2] = z[1:2] - theta1 * errors[:1]
    for t in range(2, len(errors)):
        np.multiply(coefficients, errors[t - 2 : t], products)
        error = errors[t]
        np.subtract(z[t], newer, error)
        np.subtract(error, older, error)


def paths(count: int, path: Path, phi: Array) -> Array:
    """The first ``count`` values of each series' initial ``path``; shape (time, series)."""
    powers = powers_until(np.arange(count, dtype=np.float64)[:, None], phi)
    return path.first + powers * path.rise


def powers_until(horizon: Array | float, phi: Array) -> Array:
    """``1 + phi + ... + phi^(horizon - 1)`` for a damped trend, extended to any horizon from 0."""
    linear = phi == 1.0
    below = np.where(linear, 0.5, phi)
    return np.where(linear, horizon, (1 - below**horizon) / (1 - below))


def smooth(values: Array, smoothing: Smoothing, path: Path) -> Smoothed:
    """Smooth several series, each with its own parameters.

    Args:
        values: shape (time, series), finite.
        smoothing: parameters, an element per series.
        path: initial paths, an element per series.

    >>> one = np.ones(1)
    >>> line = np.array([[3.0], [5.0], [7.0]])
    >>> found = smooth(line, Smoothing(one / 2, one / 2, one), Path(3 * one, 2 * one))
    >>> found.errors.ravel().tolist(), ahead(found.levels[-1], found.steps[-1], 1.5, one).tolist()
    ([0.0, 0.0, 0.0], [10.0])
    """
    # Append any value: this value minus its error is the forecast after the last true value.
    extended = np.concatenate([values, values[-1:]])
    rest = extended - paths(len(extended), path, smoothing.phi)
    errors = np.empty(rest.shape)
    filtered(differenced(rest, smoothing.phi), *thetas(smoothing), errors)
    levels = values - (1 - smoothing.alpha) * errors[:-1]
    return Smoothed(errors[:-1], levels, (extended[1:] - errors[1:]) - levels)


def ahead(levels: Array, steps: Array, horizon: float, phi: Array) -> Array:
    """The forecasts ``horizon`` (at least 0, not necessarily whole) periods after ``levels``."""
    return levels + powers_until(horizon, phi) * steps

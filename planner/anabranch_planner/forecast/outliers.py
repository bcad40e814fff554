"""Cleaning of outliers: they are moved towards their neighbours before smoothing.

In smoothing with squared errors, one wrong value can move level, trend and parameters without
limit. Therefore S. Gelper, R. Fried and C. Croux ("Robust forecasting with exponential and
Holt-Winters smoothing", Journal of Forecasting 29, 2010) smooth *cleaned* values

    y*_t = m_t + psi((y_t - m_t) / s) * s,     psi(x) = min(k, max(-k, x))         (Huber's psi)

where ``m_t`` is the expected value at ``t`` and ``s`` a robust scale of one-step errors. This
module uses two estimates without recursion:

- ``m_t`` is the median of the value and its two neighbours (the identifier of Hampel; see R. K.
  Pearson, "Outliers in process modeling and identification", IEEE Transactions on Control Systems
  Technology 10, 2002). The first and the last value lack a neighbour. For them the two nearest
  values are extrapolated by the median of the five nearest differences.
- ``s`` is the third quartile of all differences' distances from their median, divided by that
  quartile of a standard normal variable. A wrong value makes two differences wrong, so up to an
  eighth of the values may be wrong. If more than an eighth are outliers, they belong to the series
  and stay.

``k`` is 3. A line stays unchanged. So does a step between two constants once it has lasted for two
values. So a change is accepted one period late, when a second value confirms it. Values beside an
outlier may move, too, by at most their difference from their own neighbours.
"""

from __future__ import annotations

import numpy as np

from anabranch_planner.forecast.grid import Array, Places

#: Maximum distance of a cleaned value from the expected value, in units of ``s``.
CLIP = 3.0
#: Minimum number of values for an estimate of ``s``; shorter series are left unchanged.
ENOUGH = 6
#: Number of differences from which a series is extrapolated at its ends.
ENDS = 5
#: Third quartile of the absolute value of a standard normal variable.
QUARTILE = 1.1503493803760079


def cleaned(values: Array, lengths: Places) -> Array:
    """Measured values of series, in which outliers have been moved towards their neighbours.

    Args:
        values: shape (time, series); finite.
        lengths: number of rows that belong to each series; later rows are returned unchanged.

    >>> line = np.array([[1.0, 2.0, 3.0, 4.0, 500.0, 6.0, 7.0, 8.0, 9.0, 10.0]]).T
    >>> cleaned(line, np.array([10])).ravel().tolist()
    [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 7.0, 8.0, 9.0, 10.0]
    """
    if len(values) < ENOUGH:
        return values
    series = np.arange(values.shape[1])
    own = np.arange(len(values))[:, None] < lengths
    enough = lengths >= ENOUGH
    # For a series that is too short, the rows after its end are computed and then ignored.
    last = np.maximum(lengths, ENOUGH) - 1
    steps = np.diff(values, axis=0)

    centres = values.copy()
    centres[1:-1] = _middle(values[:-2], values[1:-1], values[2:])
    slope = np.median(steps[:ENDS], axis=0)
    centres[0] = _middle(values[0], values[1] - slope, values[2] - 2 * slope)
    slope = np.median(steps[last - 1 - np.arange(ENDS)[:, None], series], axis=0)
    before, earlier = values[last - 1, series], values[last - 2, series]
    centres[last, series] = _middle(values[last, series], before + slope, earlier + 2 * slope)

    bound = np.where(own & enough, CLIP * _scale(steps, last), np.inf)
    return np.clip(values, centres - bound, centres + bound)


def _middle(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _scale(steps: Array, counts: Places) -> Array:
    """Robust scale ``s`` of each series, from its first ``counts`` differences."""
    series = np.arange(steps.shape[1])
    absent = np.arange(len(steps))[:, None] >= counts
    ordered = np.sort(np.where(absent, np.inf, steps), axis=0)
    median = ordered[(counts - 1) // 2, series]
    distances = np.sort(np.where(absent, np.inf, np.abs(steps - median)), axis=0)
    scale: Array = distances[3 * counts // 4 - 1, series] / QUARTILE
    return scale

"""PMJoin's Fig. 8 for different distributions, under several assumptions on details that the paper
does not state.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from benchmarks.papers.pmjoin.operators import cost
from benchmarks.papers.pmjoin.partitioners import by_rate, placed
from benchmarks.papers.pmjoin.rates import ValueRates, windowed
from benchmarks.papers.pmjoin.stream_join_opt import simple, stream_join_opt
from benchmarks.pmjoin.draws import OURS, Kind, Reading, drawn, rates_of

STREAMS = 10
#: Number of draws per set of assumptions; draws differ much.
DRAWS = 12
BASE, NARROW, TOGETHER = "as in Fig. 8", "normal of 0.001 to 0.5 by logarithm", "the last three"
#: The assumptions: varied one by one, and the last three together.
READINGS = {
    BASE: OURS,
    "hot spots shifted": Reading(shifted=True),
    "normal of 0.01 to 0.1": Reading(deviations=(0.01, 0.1)),
    "each parameter as likely": Reading(by_parameter=True),
    "rates a geometric series": Reading(geometric=True),
    NARROW: Reading(deviations=(0.001, 0.5), even=False),
    TOGETHER: Reading((0.001, 0.5), even=False, by_parameter=True, geometric=True),
}


def measure() -> list[dict[str, Any]]:
    """Return a row per set of assumptions and kind of hot spots: mean costs, ranges per value."""
    rows = []
    for name, reading in READINGS.items():
        for contiguous in (True, False):
            if reading.shifted and not contiguous:
                continue
            kind = Kind(similar=False, contiguous=contiguous)
            runs = [_run(seed, kind, reading) for seed in range(DRAWS)]
            row: dict[str, Any] = {
                "reading": name,
                "hot_spots": "contiguous" if contiguous else "random",
            }
            for figure in runs[0]:
                row[figure] = round(statistics.fmean(run[figure] for run in runs), 3)
            each = [run["each_×"] for run in runs]
            rows.append({**row, "least_×": round(min(each), 3), "most_×": round(max(each), 3)})
    return rows


def _run(seed: int, kind: Kind, reading: Reading) -> dict[str, float]:
    rng = np.random.default_rng([8, seed])
    rates = rates_of(rng, STREAMS, reading)
    seconds = list(rng.uniform(10, 100, STREAMS))
    given = windowed(*drawn(rng, kind, rates, seconds, reading=reading))
    sites = range(STREAMS)
    one = cost(stream_join_opt(given, sites), given)
    groups = (by_rate(given, 2), np.arange(given.values))
    two, each = (
        sum(group.cost for group in placed(given, sites, way, stream_join_opt)) for way in groups
    )
    return {
        "one_plan": one,
        "of_simple_×": one / cost(simple(given, sites), given),
        "two_×": two / one,
        "each_×": each / one,
        "each_exactly_×": each_exactly(given) / one,
    }


def each_exactly(rates: ValueRates) -> float:
    """Return the least rate of tuples sent if each stream arrives at a separate host: the sum of
    the optima of all values.

    Computed by the dynamic program of :mod:`benchmarks.papers.pmjoin.exact`, for all values at
    once.
    """
    count = rates.count
    ready = np.zeros((1 << count, count, rates.values))
    made = ready[0]
    for streams in range(1, 1 << count):
        made = np.full((count, rates.values), np.inf)
        lowest = streams & -streams
        rest = part = streams ^ lowest
        if not rest:
            made[lowest.bit_length() - 1] = 0.0
        while part:
            np.minimum(made, ready[part] + ready[streams ^ part], out=made)
            part = (part - 1) & rest
        ready[streams] = np.minimum(made, made.min(axis=0) + rates.each(streams))
    return float(made.min(axis=0).sum())

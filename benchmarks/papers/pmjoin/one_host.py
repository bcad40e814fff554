"""Traffic between hosts if all joins of a group of values are on one host, or each join on its best
host.

A pipeline has one map from partitions to hosts for all stores (ADR 0039), so a group of values is
joined on one host. If each stream arrives at a separate host, the best one is that of the group's
fastest stream (:func:`~benchmarks.papers.pmjoin.stream_join_opt.simple`). Streams are drawn as in
``benchmarks.pmjoin``, from different distributions with random hot spots; groups are made by hash,
like partitions.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from benchmarks.papers.pmjoin.exact import exact
from benchmarks.papers.pmjoin.partitioners import by_hash, placed
from benchmarks.papers.pmjoin.rates import windowed
from benchmarks.papers.pmjoin.stream_join_opt import simple, stream_join_opt
from benchmarks.pmjoin.draws import Kind, drawn, rates_of

#: Numbers of partitions of a store; 16 is the default on a cluster.
PARTITIONS = (1, 16, 64)
_PLACES = {"one host": simple, "streamjoinopt": stream_join_opt, "exact": exact}


def compared(
    streams: int, seeds: int, longest: float, values: int = 1000
) -> list[dict[str, float]]:
    """Return the mean tuples per second between hosts, a row for each number of partitions.

    Args:
        longest: maximum length of windows in seconds; the minimum is a tenth of it.
    """
    rows = []
    for partitions in PARTITIONS:
        sent: dict[str, list[float]] = {name: [] for name in _PLACES}
        for seed in range(seeds):
            rng = np.random.default_rng([streams, seed])
            seconds = list(rng.uniform(longest / 10, longest, streams))
            given = drawn(
                rng, Kind(similar=False, contiguous=False), rates_of(rng, streams), seconds, values
            )
            rates = windowed(*given)
            groups = by_hash(values, partitions)
            for name, place in _PLACES.items():
                found = placed(rates, range(streams), groups, place)
                sent[name].append(sum(group.cost for group in found))
        means = {name: statistics.fmean(each) for name, each in sent.items()}
        rows.append({"partitions": partitions, **means})
    return rows


def text(rows: Sequence[dict[str, float]]) -> str:
    """Return the comparison as text, a line per number of partitions."""
    names = list(rows[0])
    lines = ["  ".join(f"{name:>13}" for name in names)]
    lines += ["  ".join(f"{row[name]:>13.6g}" for name in names) for row in rows]
    return "\n".join(lines) + "\n"

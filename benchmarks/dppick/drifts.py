"""Streams of a four-way join whose run time depends on the probe order, with different drifts.

Inputs arrive at unequal rates. Each key of a join is drawn from the keys of the last :data:`REACH`
batches, so a tuple finds partners only within these; the fewer new keys there are per batch, the
more partners a tuple has (fan-out). If a step's mean fan-out is below 1, most tuples have unique
keys (the step is nearly empty). In every graph one step is nearly empty, so there are few results.
The position of this step drifts, and the fan-out of the others:

* ``constant``: nothing drifts. ``swap``: at one third and at two thirds of the stream the empty
  step and the widest one change places. ``trend``: they do so gradually, linearly in their
  logarithms. ``oscillate``: there and back, three times. ``burst``: four times, for a twentieth of
  the stream each.

Graphs: ``star`` (a hub with three others, a key for each), ``path`` (a - h - b - c, a key for each
pair), ``clique`` (one key in all four).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.dppick.engine import Workload
from benchmarks.umjoin.operators.joins import Equality, Input, Join

PATTERNS = ("constant", "swap", "trend", "oscillate", "burst")
#: Graph -> its join keys, each with the inputs that have it.
GRAPHS = {
    "star": (("x", "ha"), ("y", "hb"), ("z", "hc")),
    "path": (("x", "ha"), ("y", "hb"), ("z", "bc")),
    "clique": (("k", "habc"),),
}
NAMES = tuple("habc")
#: Number of batches for which a key is in use.
REACH = 6
#: Mean number of partners in the nearly empty step; bounds of the means of other steps; and the
#: upper bound of the product of these means.
EMPTY, LEAST, MOST, PRODUCT = 0.02, 1.0, 100.0, 250.0
_BURSTS = 4
_BURST = 0.05
_CYCLES = 3
#: Join keys are multiples of this number; keys in between belong to one input only.
_STRIDE = 8


@dataclass(frozen=True, slots=True)
class Drift:
    """A scenario of generated streams; equal values give equal streams.

    Attributes:
        tuples: number of tuples of all inputs per batch.
        batches: number of batches.
    """

    graph: str
    pattern: str
    seed: int
    tuples: int = 1600
    batches: int = 120

    @property
    def name(self) -> str:
        """Name of the scenario in tables."""
        return f"{self.graph}, {self.pattern}, {self.seed}"


def workload_of(drift: Drift) -> Workload:
    """Generate the streams of a scenario, and count their join results with DuckDB."""
    # All patterns of a graph and seed begin with the same rates and means.
    draw = np.random.default_rng([drift.seed, list(GRAPHS).index(drift.graph)])
    join = _join(drift.graph)
    rates = draw.permutation(np.array([4.0, 2.0, 1.0, 1.0]))
    counts = dict(zip(NAMES, (drift.tuples * rates / rates.sum()).astype(int), strict=True))
    steps = 4 if drift.graph == "clique" else 3
    first = _means(draw, steps)
    empty, widest = int(np.argmin(first)), int(np.argmax(first))
    second = first.copy()
    second[[empty, widest]] = first[[widest, empty]]
    weights = [_weight(drift.pattern, t / drift.batches) for t in range(drift.batches)]
    means = np.exp([(1 - w) * np.log(first) + w * np.log(second) for w in weights])
    columns: dict[str, dict[str, list[NDArray[np.int64]]]] = {name: {} for name in NAMES}
    for number, (key, members) in enumerate(GRAPHS[drift.graph]):
        if drift.graph == "clique":
            # The share of each input's tuples that have common keys determines the mean of its
            # partners.
            wide = float(means.max())
            rows = np.array([counts[m] for m in members])
            fresh = np.full(drift.batches, max(rows) / (2 * wide))
            shares = np.minimum(1.0, means / wide * max(rows) / rows)
        else:
            rows = np.array([counts[m] for m in members])
            fresh = math.sqrt(rows.prod()) / (2 * np.maximum(1.0, means[:, number]))
            shares = np.sqrt(np.minimum(1.0, means[:, number]))[:, None].repeat(2, axis=1)
        for m, member in enumerate(members):
            columns[member][key] = _keys(draw, counts[member], fresh, shares[:, m], m)
    batches = tuple(
        {
            name: pa.RecordBatch.from_arrays([pa.array(k[t]) for k in keys.values()], names=[*keys])
            for name, keys in columns.items()
        }
        for t in range(drift.batches)
    )
    return Workload(drift.name, join, batches, _expected(join, batches), REACH)


def _join(graph: str) -> Join:
    inputs = tuple(
        Input(n, pa.schema([(key, pa.int64()) for key, members in GRAPHS[graph] if n in members]))
        for n in NAMES
    )
    equal = [
        Equality((members[0], key), (other, key))
        for key, members in GRAPHS[graph]
        for other in members[1:]
    ]
    return Join(inputs, tuple(equal))


def _means(draw: np.random.Generator, steps: int) -> NDArray[np.float64]:
    """Draw each step's mean partners: one step is nearly empty, the others' product is bounded."""
    logs = draw.uniform(math.log(LEAST), math.log(MOST), steps - 1)
    logs *= min(1.0, math.log(PRODUCT) / logs.sum())
    return draw.permutation(np.append(np.exp(logs), EMPTY))


def _weight(pattern: str, at: float) -> float:
    """Degree, 0 to 1, to which the empty and the widest step have changed places at a share of the
    stream.

    >>> [_weight("swap", at) for at in (0.1, 0.5, 0.9)]
    [0.0, 1.0, 0.0]
    """
    if pattern == "swap":
        return float(1 / 3 <= at < 2 / 3)
    if pattern == "trend":
        return at
    if pattern == "oscillate":
        return (1 - math.cos(2 * math.pi * _CYCLES * at)) / 2
    if pattern == "burst":
        return float((at * _BURSTS) % 1 >= 1 - _BURST * _BURSTS)
    return 0.0


def _keys(
    draw: np.random.Generator,
    count: int,
    fresh: NDArray[np.float64],
    shares: NDArray[np.float64],
    member: int,
) -> list[NDArray[np.int64]]:
    """Draw the keys of one input, batch by batch.

    Args:
        fresh: number of new common keys in each batch.
        shares: share of the tuples with common keys in each batch; other tuples have unique keys.
    """
    ends = REACH * fresh[0] + np.cumsum(fresh)
    begins = np.concatenate([fresh[0] * np.arange(REACH), ends[:-REACH]])[: len(ends)]
    found, own = [], 0
    for begin, end, share in zip(begins, ends, shares, strict=True):
        common = np.floor(draw.uniform(begin, end, count)).astype(np.int64) * _STRIDE
        alone = (own + np.arange(count)) * _STRIDE + 1 + member
        own += count
        found.append(np.where(draw.random(count) < share, common, alone))
    return found


def _expected(join: Join, batches: Sequence[dict[str, pa.RecordBatch]]) -> int:
    sides = ((".".join(e.left), ".".join(e.right)) for e in join.equalities)
    equal = " AND ".join(f"{left} = {right}" for left, right in sides)
    with duckdb.connect() as db:
        for name in NAMES:
            db.register(name, pa.Table.from_batches([batch[name] for batch in batches]))
        row = db.execute(f"SELECT count(*) FROM {', '.join(NAMES)} WHERE {equal}").fetchone()
    assert row is not None
    return int(row[0])

"""Execution of one multi-way join operator over a stream, under a policy that chooses probe orders.

The operator is UMJoin's (:mod:`benchmarks.umjoin`) over its in-memory backend. The stream arrives
in batches. After every ``period`` batches the operator's counts are added to series, and the orders
for the next period are searched. A period is a number of batches, not of seconds, so that all
counts and orders are reproducible. No data moves when orders change: all orders use the same stores
and indexes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.dppick.measures import History, Period
from benchmarks.papers.dppick.problem import Accounting, order_cost
from benchmarks.papers.dppick.search import Ablation, Algorithm, search_orders
from benchmarks.session import WrongResultError
from benchmarks.umjoin.backends.interface import BackendKind, TableSpec
from benchmarks.umjoin.backends.opening import open_backend
from benchmarks.umjoin.operators.chains import StepCounts, StepMeter, StepName
from benchmarks.umjoin.operators.joins import Join
from benchmarks.umjoin.operators.multi_join import MultiJoin, probe_orders

#: Input -> the other inputs, in the order in which its tuples probe them.
Orders: TypeAlias = "Mapping[str, tuple[str, ...]]"
#: Memory limit in bytes that no run reaches.
AMPLE = 1 << 40


@dataclass(frozen=True, slots=True)
class Workload:
    """A stream in batches, and the join to compute over it.

    Attributes:
        expected: number of results, counted by DuckDB.
        reach: number of batches after which a tuple finds no more partners; None: no limit.
    """

    name: str
    join: Join
    batches: tuple[Mapping[str, pa.RecordBatch], ...]
    expected: int
    reach: int | None = None

    def stored(self, batch: int) -> dict[str, int]:
        """Return each input's number of earlier tuples that may have partners in ``batch``."""
        first = 0 if self.reach is None else max(0, batch - self.reach)
        some = self.batches[first:batch]
        return {name: sum(b[name].num_rows for b in some) for name in self.join.by_name}


@dataclass(frozen=True, slots=True)
class Policy:
    """Policy for choosing probe orders.

    Attributes:
        algorithm: with ``fixed`` the first orders stay.
        smooth: whether statistics are forecast; otherwise the last period's statistics are used.
        period: T, in batches. ``length``: L, in periods.
        gain: p, the minimum saving of a change, as a share of the order's cost. The rivals
            ``greedy`` and ``selectivity`` compute no costs of whole orders, so they always change.
    """

    name: str
    algorithm: Algorithm
    ablation: Ablation | None = None
    smooth: bool = True
    accounting: Accounting = Accounting.TUPLE
    period: int = 3
    length: int = 60
    gain: float = 0.02


@dataclass(slots=True)
class Outcome:
    """Counts and times of a run.

    Attributes:
        results: number of results.
        steps: counts of each step; empty if steps were not counted.
        seconds: CPU seconds of all batches, including statistics and decisions. counting: CPU
        seconds of counting steps and keys. ``deciding``: CPU seconds of forecasts and searches.
        batches: CPU seconds of each batch, without decisions.
        changes: (first batch, input, the input's new order) of each change.
    """

    results: int = 0
    steps: dict[StepName, StepCounts] = field(default_factory=dict)
    seconds: float = 0.0
    counting: float = 0.0
    deciding: float = 0.0
    batches: list[float] = field(default_factory=list)
    changes: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)

    @property
    def probes(self) -> int:
        """Number of tuples sent to stores."""
        return sum(step.probes for step in self.steps.values())

    @property
    def matches(self) -> int:
        """Number of rows found by probes, results included."""
        return sum(step.matches for step in self.steps.values())

    @property
    def work(self) -> int:
        """Sum of probes and matches."""
        return self.probes + self.matches

    @property
    def reorderings(self) -> int:
        """Number of batches at whose beginning orders changed."""
        return len({batch for batch, _, _ in self.changes})


def orders_of(join: Join, permutation: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the orders that a permutation of the inputs stands for: each input probes the others
    in the permutation's order, each as soon as it joins a visited input.
    """
    found = {}
    for start in join.by_name:
        order: list[str] = []
        left = [name for name in permutation if name != start]
        while left:
            order.append(next(n for n in left if join.key((start, *order), n)))
            left.remove(order[-1])
        found[start] = tuple(order)
    return found


def run(
    workload: Workload, policy: Policy, first: Orders, folder: Path, *, counted: bool = True
) -> Outcome:
    """Run the whole stream, starting with the orders ``first``.

    Args:
        folder: new folder for the backend.
        counted: whether steps are counted even if the policy is ``fixed``.

    Raises:
        WrongResultError: the number of results differs from DuckDB's.
    """
    join, names = workload.join, tuple(workload.join.by_name)
    history = History.of(join, policy.length)
    chooses = policy.algorithm is not Algorithm.FIXED
    keys = {name: KeyCount() for name in names}
    orders, operator = dict(first), MultiJoin(join, first)
    outcome, arrived = Outcome(), dict.fromkeys(names, 0)
    before = dict.fromkeys(names, 0)
    meter = StepMeter() if chooses or counted else None
    with open_backend(folder, _tables(join), AMPLE, BackendKind.MEMORY) as backend:
        for number, arrivals in enumerate(workload.batches):
            began = time.process_time()
            outcome.results += operator.process(backend, number, arrivals, meter=meter).results
            counts = time.process_time()
            if chooses:
                for name, tuples in arrivals.items():
                    arrived[name] += tuples.num_rows
                    keys[name].add(tuples)
            decides = time.process_time()
            last = number + 1 == len(workload.batches)
            if chooses and not last and (number + 1) % policy.period == 0:
                assert meter is not None
                kept = {name: count.count for name, count in keys.items()}
                stored = workload.stored(number + 1)
                history = history.recorded(Period(meter.steps, arrived, kept, before, stored))
                new = decide(history, policy, orders)
                outcome.changes += [(number + 1, n, new[n]) for n in names if new[n] != orders[n]]
                if new != orders:
                    orders, operator = new, MultiJoin(join, new)
                _fold(outcome, meter)
                meter, arrived, before = StepMeter(), dict.fromkeys(names, 0), stored
            done = time.process_time()
            outcome.batches.append(decides - began)
            outcome.counting += decides - counts
            outcome.deciding += done - decides
            outcome.seconds += done - began
    if meter is not None:
        _fold(outcome, meter)
    if outcome.results != workload.expected:
        raise WrongResultError(
            f"{workload.name}, {policy.name}: {outcome.results} results, DuckDB has "
            f"{workload.expected}"
        )
    return outcome


def decide(history: History, policy: Policy, orders: Orders) -> dict[str, tuple[str, ...]]:
    """Return the orders of the next period, chosen by ``policy`` from the measurements."""
    problem = history.problem(smooth=policy.smooth, accounting=policy.accounting)
    number = {name: n for n, name in enumerate(problem.names)}
    found = search_orders(problem, policy.algorithm, policy.ablation).orders
    by_cost = policy.algorithm in (Algorithm.DPPICK, Algorithm.EXACT)
    chosen = {}
    for name, start in number.items():
        new, old = found[start], tuple(number[n] for n in orders[name])
        if by_cost and new != old:
            now = order_cost(problem, start, old)
            if not order_cost(problem, start, new) < (1 - policy.gain) * now:
                new = old
        chosen[name] = tuple(problem.names[n] for n in new)
    return chosen


class KeyCount:
    """Distinct keys of an input so far: the maximum over its columns. Keys are small integers."""

    def __init__(self) -> None:
        self._seen: dict[str, NDArray[np.bool_]] = {}
        self._counts: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Number of distinct keys (kappa); it never falls, since no tuple expires in these runs."""
        return max(self._counts.values(), default=0)

    def add(self, tuples: pa.RecordBatch) -> None:
        """Count the keys of stored ``tuples``."""
        for name, column in zip(tuples.schema.names, tuples.columns, strict=True):
            values = column.drop_null().to_numpy()
            seen = self._seen.get(name, np.zeros(0, np.bool_))
            if len(values) and (most := int(values.max())) >= len(seen):
                wider = np.zeros(1 << most.bit_length(), np.bool_)
                wider[: len(seen)] = seen
                seen = self._seen[name] = wider
            fresh = np.unique(values[~seen[values]])
            seen[fresh] = True
            self._counts[name] = self._counts.get(name, 0) + len(fresh)


def _tables(join: Join) -> dict[str, TableSpec]:
    """Return the tables of all inputs, with the indexes that any probe order needs."""
    orders = {name: list(probe_orders(join, name)) for name in join.by_name}
    found: dict[str, TableSpec] = {}
    for number in range(max(map(len, orders.values()))):
        one = MultiJoin(join, {name: some[number % len(some)] for name, some in orders.items()})
        for name, spec in one.tables.items():
            known = found[name].indexes if name in found else ()
            indexes = tuple(dict.fromkeys((*known, *spec.indexes)))
            found[name] = TableSpec(spec.columns, indexes, timed=spec.timed)
    return found


def _fold(outcome: Outcome, meter: StepMeter) -> None:
    """Add the counts of a period to the counts of the run."""
    outcome.counting += meter.seconds
    for name, counts in meter.steps.items():
        known = outcome.steps.get(name)
        if known is None:
            outcome.steps[name] = counts
        else:
            known.probes += counts.probes
            known.found += counts.found
            known.matches += counts.matches

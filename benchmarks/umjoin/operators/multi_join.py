"""UMJoin: a multi-way join operator without intermediate results, whose state is in a backend.

Each batch first inserts the tuples of all inputs. Then the tuples of each input probe the other
tables in the input's probe order, and find rows that arrived before them. So every result is found
once, by its last-arriving tuple. By the paper's section 3.1.3, the results of a batch are exactly
the difference between the join of all tuples so far and the join of all tuples before the batch.

Source: "UMJoin", an LSM-tree-based multi-way stream join; ``docs/state.md`` describes the
differences: tuples are processed in batches, and a table's block cache is the kernel's page cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import TypeAlias

import pyarrow as pa

from anabranch_contract.queries.joins import Label
from anabranch_runtime.errors import PipelineError
from benchmarks.umjoin.backends.interface import Backend, TableSpec
from benchmarks.umjoin.operators.chains import (
    Produced,
    Sequence36,
    Step,
    StepMeter,
    arrived,
    follow,
    results_of,
    starting,
    step_to,
    table_of,
)
from benchmarks.umjoin.operators.joins import Join

#: Input -> the other inputs, in the order in which its tuples probe them.
ProbeOrders: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class MultiJoin:
    """The operator; its state is in a backend opened with :attr:`tables`.

    Attributes:
        join: the join that it computes.
        orders: a probe order for each input.
    """

    join: Join
    orders: ProbeOrders
    _steps: dict[str, tuple[Step, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raises:
        PipelineError: ``bad-probe-order``.
        """
        names = self.join.by_name
        found = {}
        for name in names:
            order = tuple(self.orders.get(name, ()))
            if sorted((name, *order)) != sorted(names):
                raise _bad(name, f"the probe order of {name!r} does not name each other input once")
            steps = []
            for i, target in enumerate(order):
                step = step_to(self.join, (name, *order[:i]), target, (target,))
                if not step.known:
                    raise _bad(name, f"nothing joins {target!r} with what precedes it")
                steps.append(step)
            found[name] = tuple(steps)
        object.__setattr__(self, "_steps", found)

    @property
    def tables(self) -> dict[str, TableSpec]:
        """Tables for the backend: one per input."""
        steps = [step for chain in self._steps.values() for step in chain]
        return {
            name: table_of(self.join, name, [s.index for s in steps if s.table == name])
            for name in self.join.by_name
        }

    def process(
        self,
        backend: Backend,
        batch: int,
        arrivals: Mapping[str, pa.RecordBatch],
        emit: Callable[[pa.RecordBatch], None] | None = None,
        watermarks: Mapping[str, int] | None = None,
        meter: StepMeter | None = None,
    ) -> Produced:
        """Process one batch and commit it.

        Args:
            backend: backend with the tuples of all earlier batches.
            batch: number of the batch, greater than that of the last one.
            arrivals: input -> its tuples.
            emit: function that gets the results, in pieces with columns ``<input>.<column>``. It is
                called before the batch is durable, and a batch that was interrupted by a kill is
                repeated, so results must be stored by batch. None: results are only counted.
            watermarks: input -> event time (microseconds) below which no more tuples will arrive;
                rows that can't be in future results may be removed.
            meter: counts of steps; None: steps are not counted.

        Raises:
            StateError: as for the backend. The operator can continue when the backend is opened
                again.
        """
        sequence, produced = Sequence36(batch), Produced(meter=meter)
        stored = {}
        for name, tuples in arrivals.items():
            stored[name] = arrived(self.join, name, tuples, sequence)
            backend.tables[name].insert(stored[name])
        for name, rows in stored.items():
            for chunk in starting(name, (name,), rows):
                before = chunk.sigma(Label(name))
                steps = self._steps[name]
                for found in follow(self.join, backend, steps, chunk, before, produced):
                    produced.found(name, found.length)
                    if emit is not None:
                        emit(results_of(self.join, found, list(self.join.by_name)))
        for name, table in backend.tables.items():
            if watermarks is not None and table.spec.timed:
                below = self.join.needed_from(name, watermarks)
                if below is not None:
                    table.expire(below)
        backend.commit(batch)
        return produced


def probe_orders(join: Join, name: str) -> Iterator[tuple[str, ...]]:
    """Yield all probe orders of an input without cross products."""
    for order in permutations(n for n in join.by_name if n != name):
        if all(join.key((name, *order[:i]), n) for i, n in enumerate(order)):
            yield order


def any_orders(join: Join) -> dict[str, tuple[str, ...]]:
    """Return the first probe order of each input."""
    return {name: next(probe_orders(join, name)) for name in join.by_name}


def _bad(name: str, message: str) -> PipelineError:
    return PipelineError(
        "bad-probe-order",
        message,
        field=name,
        remedy="name each other input once, each joined with one before it",
    )

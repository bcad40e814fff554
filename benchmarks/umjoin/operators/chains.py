"""Chains of probes: the steps of a tuple after it has been inserted into its table.

Each step of a chain probes one table. A chunk of tuples passes through all steps before the next
chunk begins, and the matches of a probe continue piece by piece (``Table.probe``), so that at most
one piece per step is in memory, however many matches a step has. A chunk without matches ends at
that step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import floored_micros
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.index.keys import values_equal
from anabranch_runtime.storage.partial import Partial, RowSet, Tables
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU, IndexKey
from benchmarks.umjoin.backends.interface import I32, Backend, Bounds, Ints, TableSpec
from benchmarks.umjoin.operators.joins import Join

#: Number of tuples in a chunk.
CHUNK = 1 << 13
#: Maximum number of pairs in a piece; results with a hundred columns take some ten megabytes.
PIECE = 1 << 14


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a chain: one probe.

    Attributes:
        table: the probed table. ``members``: inputs whose tuples its rows combine.
        index: key by which it is probed.
        known: attributes of the probing tuples, one per part of the key.
    """

    table: str
    members: tuple[str, ...]
    index: IndexKey
    known: tuple[tuple[str, str], ...]


#: Name of a step: the inputs of the partial result (sorted), and the table that it probes.
StepName: TypeAlias = tuple[tuple[str, ...], str]


@dataclass(slots=True)
class StepCounts:
    """Counts of a step over all chains: tuples that probed, tuples that found a row, rows found."""

    probes: int = 0
    found: int = 0
    matches: int = 0


@dataclass(slots=True)
class StepMeter:
    """Counts of the steps of some batches.

    Attributes:
        steps: the steps with probes.
        seconds: CPU seconds of counting.
    """

    steps: dict[StepName, StepCounts] = field(default_factory=dict)
    seconds: float = 0.0

    def sent(self, partial: Partial, step: Step) -> StepCounts:
        """Count probes of ``step`` by ``partial``; returns the step's counts,
        for :meth:`answered`.
        """
        name = tuple(sorted(partial.place)), step.table
        counts = self.steps.setdefault(name, StepCounts())
        counts.probes += partial.length
        return counts

    def answered(self, counts: StepCounts, positions: I32, probes: int) -> None:
        """Count found rows: ``positions`` has the tuple of each row. All rows of a tuple come in
        one call.
        """
        began = time.process_time()
        hit = np.zeros(probes, np.bool_)
        hit[positions] = True
        counts.found += int(np.count_nonzero(hit))
        counts.matches += len(positions)
        self.seconds += time.process_time() - began


@dataclass(slots=True)
class Produced:
    """Counts of the results of a batch.

    Attributes:
        results: number of results. ``pairs``: number of pairs that probes have found, including
            last steps.
        by_input: number of results by input of the tuple that arrived last.
        meter: counts of steps; None: steps are not counted.
    """

    results: int = 0
    pairs: int = 0
    by_input: dict[str, int] = field(default_factory=dict)
    meter: StepMeter | None = None

    def found(self, name: str, count: int) -> None:
        """Add ``count`` results whose last tuple is of the input ``name``."""
        self.results += count
        self.by_input[name] = self.by_input.get(name, 0) + count


@dataclass(slots=True)
class Sequence36:
    """Arrival sequence numbers of a batch."""

    batch: int
    _next: int = 0

    def take(self, count: int) -> Ints:
        """Take the next ``count`` numbers."""
        first = (self.batch << OFFSET_BITS) + self._next
        self._next += count
        return np.arange(first, first + count, dtype=np.int64)


def table_of(join: Join, name: str, indexes: Sequence[IndexKey]) -> TableSpec:
    """Return the definition of the table for an input's tuples."""
    one = join.by_name[name]
    return TableSpec(one.columns, tuple(dict.fromkeys(indexes)), one.event_time is not None)


def step_to(join: Join, known: Sequence[str], table: str, members: tuple[str, ...]) -> Step:
    """Return the step from tuples that combine the ``known`` inputs to a table over ``members``."""
    key = join.key_of(known, members)
    index = IndexKey(tuple(p.column for p in key), tuple(p.type for p in key))
    return Step(table, members, index, tuple(p.known for p in key))


def arrived(join: Join, name: str, rows: pa.RecordBatch, sequence: Sequence36) -> pa.RecordBatch:
    """Return tuples as stored rows, except tuples that can't be in any result: without event time,
    or with different values in columns that must be equal.

    Raises:
        PipelineError: ``bad-arrivals``.
    """
    one = join.by_name.get(name)
    missing = [] if one is None else [c for c in one.columns.names if c not in rows.schema.names]
    if one is None or missing:
        raise PipelineError(
            "bad-arrivals",
            f"{name!r} is not an input"
            if one is None
            else f"tuples of {name!r} lack {missing[0]!r}",
            field=name,
            remedy="name tuples and their columns as the join does",
        )
    kept = np.ones(rows.num_rows, np.bool_)
    for left, right, kind in join.own_equalities(name):
        kept &= values_equal([rows.column(left)], [rows.column(right)], [kind])
    if one.event_time is not None:
        kept &= rows.column(one.event_time).is_valid().to_numpy(zero_copy_only=False)
    if not kept.all():
        rows = rows.filter(pa.array(kept))
    arrays = list(rows.columns)
    names = list(rows.schema.names)
    names.append(SIGMA)
    arrays.append(pa.array(sequence.take(rows.num_rows)))
    if one.event_time is not None:
        names.append(TAU)
        micros = floored_micros(rows.column(one.event_time), pa.timestamp("us"))
        arrays.append(micros.view(pa.int64()))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def starting(name: str, members: tuple[str, ...], rows: pa.RecordBatch) -> Iterator[Partial]:
    """Cut stored rows over ``members`` into chunks, as partial results with which chains start."""
    for at in range(0, rows.num_rows, CHUNK):
        chunk = rows.slice(at, CHUNK)
        numbers = np.arange(chunk.num_rows, dtype=np.int32)
        place = {Label(m): (0, m if len(members) > 1 else "") for m in members}
        found = RowSet(Tables([BatchTable(chunk)]), None, numbers)
        yield Partial(chunk.num_rows, (found,), place, Label(name))


def follow(
    join: Join,
    backend: Backend,
    steps: Sequence[Step],
    partial: Partial,
    before: Ints,
    produced: Produced,
) -> Iterator[Partial]:
    """Yield the results from ``partial``, tuples with sequence numbers ``before``, by joining rows
    of every step's table that arrived earlier.
    """
    if not steps:
        yield partial
        return
    step, *rest = steps
    keys = [partial.column(Label(n), c) for n, c in step.known]
    bounds = Bounds(before, *_between(join, partial, step))
    place = {Label(m): m if len(step.members) > 1 else "" for m in step.members}
    meter = produced.meter
    counts = None if meter is None else meter.sent(partial, step)
    for found in backend.tables[step.table].probe(step.index, keys, bounds, PIECE):
        produced.pairs += len(found.positions)
        if meter is not None and counts is not None:
            meter.answered(counts, found.positions, partial.length)
        grown = partial.extend(found.positions, found.rows, place)
        sigma = before[found.positions]
        kept = _in_time(join, grown, partial, step)
        if kept is not None:
            grown, sigma = grown.take(kept), sigma[kept]
        if grown.length:
            yield from follow(join, backend, rest, grown, sigma, produced)


def results_of(join: Join, partial: Partial, members: Sequence[str]) -> pa.RecordBatch:
    """Return all columns of a partial result, named ``<input>.<column>``."""
    names, arrays = [], []
    for name in members:
        for column in join.by_name[name].columns.names:
            names.append(f"{name}.{column}")
            arrays.append(partial.column(Label(name), column))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _between(join: Join, partial: Partial, step: Step) -> tuple[Ints | None, Ints | None]:
    """Return limits of the event times of a step's rows, if these are tuples of a single input."""
    low: Ints | None = None
    high: Ints | None = None
    if len(step.members) == 1:
        (target,) = step.members
        for label in partial.place:
            most = join.limits.get((label, target))
            if most is not None:
                limit = partial.tau(label) + most
                high = limit if high is None else np.minimum(high, limit)
            least = join.limits.get((target, label))
            if least is not None:
                limit = partial.tau(label) - least
                low = limit if low is None else np.maximum(low, limit)
    return low, high


def _in_time(join: Join, grown: Partial, partial: Partial, step: Step) -> I32 | None:
    """Return the tuples within all time bounds between old and new members, if :func:`_between`
    could not check them; None: all tuples are within.
    """
    if len(step.members) == 1:
        return None
    kept = np.ones(grown.length, np.bool_)
    for old in partial.place:
        for new in step.members:
            for earlier, later in ((old, new), (new, old)):
                most = join.limits.get((earlier, later))
                if most is not None:
                    kept &= grown.tau(Label(later)) - grown.tau(Label(earlier)) <= most
    return None if kept.all() else np.flatnonzero(kept).astype(np.int32)

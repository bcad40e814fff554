"""Statistics in the driver: merging the tasks' measurements into the state, and publishing them.

``docs/statistics.md`` defines each statistic and its error.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from anabranch_contract.codec import fields
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    FrequentValues,
    LatestRows,
    StoreStatistics,
    StreamSample,
    StreamStatistics,
)
from anabranch_contract.queries.types import TypeKind
from anabranch_runtime.columns.arrays import conform
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.columns.nested import is_nested
from anabranch_runtime.epochs.layout import routes
from anabranch_runtime.errors import ArrowTypeError, ExpressionError
from anabranch_runtime.index.hash_index import estimate_distinct
from anabranch_runtime.state.derived import Derived
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.measured import Measurements, TaskMeasures, added, sum_reads
from anabranch_runtime.state.measures import (
    RANK,
    SIZE,
    STORE,
    Bounds,
    KeyBound,
    KnownValues,
    StreamMeter,
    add_counts,
    key_bound,
    least,
    merge_packed,
    unpack,
)
from anabranch_runtime.state.values import KeyValues, ValueCounts
from anabranch_runtime.traced import changed

#: Names of the fields of ``StreamMeter`` that are published.
_PUBLISHED = frozenset(StreamStatistics.__match_args__)
#: A sample is published again once this fraction of its tuples has changed.
CHANGED = 0.1


def bounds(state: State, samples: Samples) -> Bounds:
    """Return bounds by which tasks of the next batch skip values that can't affect statistics."""
    return Bounds(
        keys=_key_bounds.of(state.measured.sketches),
        ranks=samples.bounds(),
        newest={name: s.newest for name, s in state.streams.items() if s.newest is not None},
        values=_known_values.of(state.measured.values),
    )


def _bounds_of_keys(_: str, sketches: Mapping[str, str]) -> dict[str, KeyBound]:
    return {key: key_bound(sketch) for key, sketch in sketches.items()}


def _values_of_keys(_: str, values: Mapping[str, KeyValues]) -> dict[str, KnownValues]:
    return {key: found.known for key, found in values.items()}


_key_bounds, _known_values = Derived(_bounds_of_keys), Derived(_values_of_keys)


def measured(
    state: State, tasks: Sequence[TaskMeasures], written: int, seconds: float, now: float | None
) -> Measurements:
    """Add the measurements of a batch's tasks to those in ``state``.

    Args:
        state: the state after the batch's streams and stores have been updated.
        written: bytes of the batch's segments.
        seconds: duration of the batch. ``now``: its end, seconds since 1970; None: no clock.
    """
    known, ran, epoch = state.measured, state.measured.ran, str(state.epoch)
    if now is not None:
        ran = (now - seconds if ran is None else ran[0], now)
    probes = sum(edge.probes for task in tasks for edge in task.edges.values())
    return replace(
        known,
        arrivals=added(known.arrivals, (task.arrivals for task in tasks)),
        sketches=_sketches(known, tasks, state.stores),
        values=_values_so_far(known, tasks),
        edges=_edges(known, tasks),
        reads=sum_reads(known.reads, *(task.reads for task in tasks), stores=state.stores),
        probes={**known.probes, epoch: known.probes.get(epoch, 0) + probes},
        meters=added(
            known.meters,
            ({s: _with_punctual(m) for s, m in task.streams.items()} for task in tasks),
        ),
        ran=ran,
        processing_seconds=known.processing_seconds + seconds,
        written=(known.written[0] + written, known.written[1]),
    )


def _edges(known: Measurements, tasks: Sequence[TaskMeasures]) -> dict[str, EdgeStatistics]:
    edges = added(known.edges, (task.edges for task in tasks))
    # The same tuple may be counted as matching on several hosts, or in a store and its gaps.
    touched = {edge: edges[edge] for task in tasks for edge in task.edges}
    capped = {e: replace(n, found=n.probes) for e, n in touched.items() if n.found > n.probes}
    return changed(edges, capped)


def _with_punctual(meter: StreamMeter) -> StreamMeter:
    """Add to the statistic of delays the number of punctual tuples, which tasks do not count."""
    if meter.max_tau is None:
        return replace(meter, delays=())
    punctual = meter.input - meter.invalid - meter.ahead - sum(meter.delays)
    return replace(meter, delays=add_counts(meter.delays, (max(punctual, 0),)))


def _sketches(
    before: Measurements, tasks: Sequence[TaskMeasures], stores: Collection[str]
) -> dict[str, dict[str, str]]:
    merged = {
        owner: keys
        for owner, keys in before.sketches.items()
        if not owner.startswith(STORE) or owner.removeprefix(STORE) in stores
    }
    # Unchanged entries stay the same objects, so that manifests need not repeat them.
    changed: dict[str, dict[str, str]] = {}
    for report in tasks:
        for owner, keys in report.sketches.items():
            known = changed.get(owner)
            if known is None:
                known = merged[owner] = changed[owner] = dict(merged.get(owner, {}))
            for key, sketch in keys.items():
                if key not in known:
                    known[key] = sketch
                elif sketch:
                    known[key] = merge_packed((known[key], sketch))
    return merged


def _values_so_far(
    before: Measurements, tasks: Sequence[TaskMeasures]
) -> dict[str, dict[str, KeyValues]]:
    parts: dict[str, dict[str, list[ValueCounts]]] = {}
    for report in tasks:
        for owner, keys in report.values.items():
            for key, part in keys.items():
                parts.setdefault(owner, {}).setdefault(key, []).append(part)
    merged = dict(before.values)
    for owner, found in parts.items():
        known = merged[owner] = dict(merged.get(owner, {}))
        for key, counts in found.items():
            known[key] = known.get(key, KeyValues()).merge(counts)
    return merged


# --- publication ------------------------------------------------------------------------------


def stream_statistics(state: State) -> dict[str, StreamStatistics]:
    """Return stream -> counts, event times and delays in the current epoch."""
    ran = state.measured.ran
    seconds = 0.0 if ran is None else ran[1] - ran[0]
    found = {}
    for name, meter in state.measured.meters.items():
        known = state.streams.get(name)
        since = meter.min_tau if meter.since is None else meter.since
        newest = meter.max_tau
        event_seconds = None
        if known is not None and newest is not None and since is not None:
            event_seconds = max(newest - since, 0) / 1e6
        counts = {field: value for field, value in fields(meter).items() if field in _PUBLISHED}
        found[name] = StreamStatistics(**counts, seconds=seconds, event_seconds=event_seconds)
    return found


def store_statistics(state: State) -> dict[str, StoreStatistics]:
    """Return store -> rows, bytes, segments, distinct keys and reads, for the planner."""
    found = {}
    for name, store in state.stores.items():
        rows = sum(s.rows for s in store.segments)
        owner = str(store.spec.relations[0]) if store.is_base else STORE + name
        keys = {
            key: min(estimate_distinct(unpack(sketch)), float(rows))
            for key, sketch in state.measured.sketches.get(owner, {}).items()
        }
        total = sum(s.bytes for s in store.segments)
        reads = state.measured.reads.get(name, {})
        found[name] = StoreStatistics(rows, total, len(store.segments), keys, reads, store.spec.mir)
    return found


def distincts(state: State) -> dict[str, dict[str, float]]:
    """Return relation -> key -> estimated number of distinct values, as a statistic."""
    return {
        owner: {key: estimate_distinct(unpack(sketch)) for key, sketch in keys.items()}
        for owner, keys in state.measured.sketches.items()
        if not owner.startswith(STORE)
    }


def frequent_values(state: State) -> dict[str, dict[str, FrequentValues]]:
    """Return relation -> key attribute -> frequent values with their counts, for the planner."""
    return {
        owner: {key: found.published() for key, found in keys.items()}
        for owner, keys in state.measured.values.items()
    }


def _values(column: pa.Array) -> list[object]:
    """Return a sampled column's values in the JSON form that literals of expressions have."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        return [None if v is None else repr(v) for v in column.to_pylist()]
    elif spark_type(kind).kind is TypeKind.BINARY:
        return [None if v is None else v.hex() for v in column.to_pylist()]
    values: list[object] = column.to_pylist()
    return values


@dataclass(slots=True)
class _Reservoir:
    """A stream's sample: ``rows`` by rank, and ``fresh`` rows that are not merged into it yet."""

    seen: int
    rows: pa.RecordBatch
    fresh: list[pa.RecordBatch] = field(default_factory=list)
    #: Ranks of the rows in the sample as last published.
    published: frozenset[int] = frozenset()

    def merge(self) -> None:
        if self.fresh:
            self.rows, self.fresh = least([self.rows, *self.fresh]), []


class Samples:
    """Samples of the tuples of all streams, in the driver's memory.

    They are not part of the committed state, since only estimates depend on them. A restarted
    driver begins new samples; published ones remain until it publishes its own.
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Reservoir] = {}

    def add(self, tasks: Iterable[TaskMeasures]) -> None:
        """Add the samples picked by the tasks of a committed batch."""
        for task in tasks:
            for stream, sample in task.samples.items():
                self._add(stream, sample.seen, sample.rows)

    def _add(self, stream: str, seen: int, rows: pa.RecordBatch | None) -> None:
        known = self._streams.get(stream)
        if known is not None:
            known.seen += seen
        if rows is None:
            return
        if known is None:
            self._streams[stream] = _Reservoir(seen, least([rows]))
        elif rows.schema != known.rows.schema:
            # The stream's columns have changed. In this batch, tasks used the old sample's bound,
            # so the new sample begins with the next batch.
            del self._streams[stream]
        else:
            known.fresh.append(rows)
            if len(known.rows) < SIZE or sum(r.num_rows for r in known.fresh) > SIZE:
                known.merge()

    def bounds(self) -> dict[str, int]:
        """Return stream -> rank from which on a tuple can't enter the sample."""
        return {
            stream: known.rows.column(RANK)[SIZE - 1].as_py()
            for stream, known in self._streams.items()
            if known.rows.num_rows == SIZE
        }

    def changed(self) -> dict[str, StreamSample]:
        """Return the samples that have changed enough since the last call to be published."""
        found = {}
        for stream, known in self._streams.items():
            known.merge()
            ranks = frozenset(known.rows.column(RANK).to_pylist())
            if len(ranks - known.published) > CHANGED * len(ranks):
                known.published = ranks
                found[stream] = _published(known)
        return found


class LatestTuples:
    """The latest rows of all streams, in the driver's memory, not in the committed state.

    After a restart, the published rows stay until the driver publishes others.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[pa.RecordBatch]] = {}
        self._changed: set[str] = set()

    def add(self, tasks: Iterable[TaskMeasures]) -> None:
        """Add the rows that tasks of a committed batch have kept as the latest ones."""
        for task in tasks:
            for stream, rows in task.latest.items():
                known = self._rows.setdefault(stream, [])
                if known and known[0].schema != rows.schema:
                    known.clear()
                known.append(rows)
                self._changed.add(stream)
                if sum(one.num_rows for one in known) > 4 * SIZE:
                    known[:] = [least(known)]

    def changed(self, streams: Collection[str]) -> tuple[dict[str, LatestRows], list[str]]:
        """Return the latest rows of streams where they have changed since the last call, and known
        streams that ``streams`` lacks now, whose rows are forgotten."""
        gone = [name for name in self._rows if name not in streams]
        for name in gone:
            del self._rows[name]
        found = {name: _shown(self._rows[name]) for name in self._changed if name in self._rows}
        self._changed.clear()
        return found, gone


def _shown(known: list[pa.RecordBatch]) -> LatestRows:
    rows = least(known)
    known[:] = [rows]
    columns = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        with suppress(ArrowTypeError, ExpressionError):
            # Columns of types without a counterpart in Spark are left out: no query can read them.
            columns[name] = conform(column, spark_type(column.type))
    del columns[RANK]
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return LatestRows(rows.num_rows, base64.b64encode(sink.getvalue()).decode())


def _published(known: _Reservoir) -> StreamSample:
    columns = {}
    for name, column in zip(known.rows.schema.names, known.rows.columns, strict=True):
        if name == RANK or is_nested(column.type):
            continue
        try:
            columns[name] = (str(spark_type(column.type)), _values(column))
        except ArrowTypeError:
            # A column of a type without a counterpart in Spark is left out: no query can read it.
            continue
    return StreamSample(known.seen, known.rows.num_rows, columns)


#: CPU seconds per result for its output, which measured probe times do not include.
GIVEN_OUT = 6e-8


def arrival_costs(state: State, ruleset: Ruleset) -> dict[str, float]:
    """Return stream -> expected CPU seconds of probing per tuple, for streams with tuples.

    The CPU seconds of the probe trees that a stream's tuples start, and of their results, are
    divided by the number of these tuples. Probes are counted since the last revision of the
    ruleset, tuples since the epoch began, so after a revision the costs are too low at first, for
    all streams alike. They serve to assign input to tasks (``sources.dealing``), so errors only
    make tasks wait for each other.

    Args:
        state: the committed state.
        ruleset: the ruleset of ``state``.

    Returns:
        An empty dict before the first measured probe.
    """
    found = routes(ruleset)
    seconds: dict[str, float] = defaultdict(float)
    for rule in ruleset.probe_rules:
        measured = state.measured.edges.get(rule.out)
        if measured is not None:
            relation = found.relation_of[rule.start]
            given = GIVEN_OUT * measured.made * len(found.outputs.get(rule.out, ()))
            seconds[found.relations[relation].stream] += measured.seconds + given
    if not any(seconds.values()):
        return {}
    return {
        name: seconds[name] / meter.input
        for name, meter in sorted(state.measured.meters.items())
        if meter.input
    }

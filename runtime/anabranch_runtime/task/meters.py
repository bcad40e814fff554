"""Statistics of a batch's tuples in one task: samples, key sketches, delays, frequent values.

Measuring must cost next to nothing (``docs/statistics.md`` states its share of the run time), so a
task only examines values that can still change the statistics: the driver sends it thresholds
(:class:`~anabranch_runtime.state.measures.Bounds`), and after a few batches, hardly any hash is
below its threshold. The statistics do not depend on the division of tuples into blocks and tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import StoreSpec
from anabranch_runtime.columns.arrays import U64, Bools, plain
from anabranch_runtime.columns.nested import is_nested
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.index.frequent import frequent
from anabranch_runtime.index.hash_index import distinct, distinct_sketch
from anabranch_runtime.index.keys import KeyVector, mix
from anabranch_runtime.state.measured import SampledRows
from anabranch_runtime.state.measures import (
    RANK,
    SIZE,
    STORE,
    Bounds,
    KeyBound,
    KnownValues,
    StreamMeter,
    delay_classes,
    least,
    pack,
    unpack,
)
from anabranch_runtime.state.values import MOST, KeyValues, ValueCounts
from anabranch_runtime.task.stores import KeyCache

if TYPE_CHECKING:  # its readers need more memory than a task has
    from anabranch_runtime.sources.blocks import Block

#: One in ``EVERY`` batches is sampled once a stream's sample is full.
EVERY = 4
#: Number of a block's tuples, evenly spaced, whose delays are measured; of blocks of less than
#: twice this size, all.
DELAYS = 2048
#: Maximum number of a stream's columns in samples: its first columns.
COLUMNS = 64
#: Length (characters, bytes) to which sampled texts and binaries are cut if the mean is longer.
TEXT = 128
#: Maximum number of characters of a frequent value's text.
NAME = 64
#: Number of hashes above which filtering out known hashes before sorting saves time.
_MANY = 4 * SIZE
#: Number of hashes that are sorted first, since few of them may be distinct.
_HEAD = 4096
_SLOTS = np.uint64(4096)
#: XORed with sigmas, so that ranks differ from hashes of key columns with equal numbers.
_SALT = np.uint64(0x5851F42D4C957F2D)


@dataclass(slots=True)
class Collector:
    """The measurements of one task during one batch.

    Attributes:
        enabled: False: nothing is measured (for ``benchmarks/statistics_cost``).
        sketches: relation, or ``STORE`` + store -> key -> packed hashes to add to the key's sketch.
        values: relation -> attribute -> counts of its frequent values.
    """

    bounds: Bounds
    batch: int = 0
    enabled: bool = True
    sketches: dict[str, dict[str, str]] = field(default_factory=dict)
    values: dict[str, dict[str, ValueCounts]] = field(default_factory=dict)
    _picked: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    _latest: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)

    def block(self, block: Block, first: int, layout: Layout) -> StreamMeter:
        """Sample a block of tuples, numbered from sigma ``first`` on; return a meter with the
        number of tuples per class of delay, empty if delays can't be measured."""
        if not self.enabled or block.rows.num_rows == 0:
            return StreamMeter()
        if block.stream not in self.bounds.ranks or self.batch % EVERY == 0:
            self._sample(block.stream, first, block.rows)
            self._keep_latest(block.stream, first, block.rows)
        spec = layout.streams.get(block.stream)
        newest = self.bounds.newest.get(block.stream)
        if spec is None or spec.event_time is None or newest is None:
            return StreamMeter()
        return StreamMeter(delays=delays_behind(block.rows.column(spec.event_time), newest))

    def _sample(self, stream: str, first: int, rows: pa.RecordBatch) -> None:
        self._seen[stream] = self._seen.get(stream, 0) + rows.num_rows
        ranks = ranks_of(first, rows.num_rows)
        limit = self.bounds.ranks.get(stream)
        if limit is not None:
            chosen = np.flatnonzero(ranks < np.uint64(limit))
            if len(chosen) == 0:
                return
        elif rows.num_rows > SIZE:
            chosen = np.argpartition(ranks, SIZE - 1)[:SIZE]
        else:
            chosen = np.arange(rows.num_rows)
        kept = self._picked.setdefault(stream, [])
        kept.append(_picked(rows, chosen, ranks[chosen]))
        if len(kept) > 1 and sum(b.num_rows for b in kept) > _MANY:
            self._picked[stream] = [least(kept)]

    def _keep_latest(self, stream: str, first: int, rows: pa.RecordBatch) -> None:
        """Keep a block's last rows for the stream's latest rows; the latest has the least rank."""
        chosen = np.arange(max(rows.num_rows - SIZE, 0), rows.num_rows)
        kept = self._latest.setdefault(stream, [])
        kept.append(_picked(rows, chosen, ~(chosen + first).astype(np.uint64)))
        if len(kept) > 1 and sum(b.num_rows for b in kept) > _MANY:
            self._latest[stream] = [least(kept)]

    def keys(self, owner: str, name: str, keys: KeyVector) -> None:
        """Add keys to sketches: keys of a relation's arrivals, or of rows written to a store."""
        if not self.enabled:
            return
        bound = self.bounds.keys.get(owner, {}).get(name, _UNKNOWN)
        found = new_hashes(keys, bound)
        sketches = self.sketches.setdefault(owner, {})
        if name in sketches:
            found = distinct_sketch(np.concatenate([found, unpack(sketches[name])]), SIZE)
        if len(found) or name not in sketches:
            sketches[name] = pack(found)

    def frequent(
        self, relation: str, name: str, keys: KeyVector, column: Callable[[], pa.Array]
    ) -> None:
        """Count the values of the key attribute ``name`` in a relation's arrivals; ``column``
        returns them. An attribute with keys of several types is counted by the first type."""
        if not self.enabled or name in self.values.setdefault(relation, {}):
            return
        known = self.bounds.values.get(relation, {}).get(name, _NO_VALUES)
        self.values[relation][name] = value_counts(keys, known, column)

    def stored(self, spec: StoreSpec, cache: KeyCache) -> None:
        """Add the keys of rows written to an MIR's store to sketches; ``cache``: keys by index."""
        for index in spec.indexes if self.enabled else ():
            refs, types = tuple(r for r, _ in index), tuple(t for _, t in index)
            if (refs, types) in cache:
                name = ",".join(sorted(f"{r.label}.{r.attribute}" for r in refs))
                self.keys(STORE + spec.id, name, cache[refs, types])

    def sampled(self) -> dict[str, SampledRows]:
        """Return stream -> rows that this task has picked for the stream's sample."""
        return {
            stream: SampledRows(seen, _few(kept) if (kept := self._picked.get(stream)) else None)
            for stream, seen in self._seen.items()
        }

    def latest(self) -> dict[str, pa.RecordBatch]:
        """Return stream -> this task's latest rows, at most ``SIZE``, with their ranks."""
        return {stream: _few(kept) for stream, kept in self._latest.items()}


_UNKNOWN = KeyBound()
_NO_VALUES = KeyValues().known


def delays_behind(times: pa.Array, newest: int) -> tuple[int, ...]:
    """Count ``times`` per class of delay behind the event time ``newest``, from a sample."""
    step = max(len(times) // DELAYS, 1)
    micros = times.view(pa.int64())
    if micros.null_count:
        micros = micros.fill_null(newest)
    tau = micros.to_numpy()[::step]
    return tuple(step * count for count in delay_classes(newest - tau[tau < newest]))


def ranks_of(first: int, count: int) -> U64:
    """Return ranks for sampling of ``count`` tuples: hashes of their sigmas, from ``first`` on."""
    return mix(np.arange(first, first + count, dtype=np.uint64) ^ _SALT)


def new_hashes(keys: KeyVector, bound: KeyBound) -> U64:
    """Return distinct hashes of ``keys`` that may enter the sketch with the threshold ``bound``: at
    most the ``SIZE`` least ones, ascending. Hashes already in the sketch may be among them."""
    hashes, valid = keys.hashes, keys.valid
    if bound.limit is not None:
        below = hashes < np.uint64(bound.limit)
        if valid is not None:
            below &= valid
        hashes = hashes[below]
    elif valid is not None:
        hashes = hashes[valid]
    if bound.known and len(hashes) > _MANY:
        hashes = hashes[_unfamiliar(hashes, unpack(bound.known))]
    if len(hashes) <= _MANY:
        return distinct_sketch(hashes, SIZE)
    head = distinct(hashes[:_HEAD])
    rest = hashes[_HEAD:]
    if len(head) >= SIZE:
        rest = rest[rest < head[SIZE - 1]]
    rest = rest[_unfamiliar(rest, head)]
    return distinct_sketch(np.concatenate([head, rest]), SIZE)


def value_counts(
    keys: KeyVector, known: KnownValues, column: Callable[[], pa.Array]
) -> ValueCounts:
    """Count known values, and other frequent ones, among the ``keys`` of a task's tuples.

    ``column`` returns the values of the keys; it is called only if a new value is frequent.
    """
    hashes, valid, tuples = keys.hashes, keys.valid, len(keys)
    rows = None
    if valid is not None:
        rows = np.flatnonzero(valid)
        hashes = hashes[rows]
    least = max(known.least, 1 if tuples <= MOST else _least(known.worth * tuples))
    found = frequent(hashes, unpack(known.hashes), least, MOST)
    texts: tuple[str, ...] = ()
    if len(found.fresh):
        places = found.positions if rows is None else rows[found.positions]
        texts = value_texts(plain(column()).take(pa.array(places)))
    return ValueCounts(
        tuples,
        tuples - len(hashes),
        found.counts,
        found.fresh,
        found.fresh_counts,
        texts,
        found.rest,
    )


def _least(expected: float) -> int:
    """Return the least count that exceeds ``expected`` by one standard deviation. Without this
    margin, some of a thousand nearly frequent values would look frequent in every batch by chance.

    >>> [_least(expected) for expected in (0.2, 2, 100)]
    [2, 4, 111]
    """
    return math.ceil(((1 + math.sqrt(1 + 4 * expected)) / 2) ** 2)


def value_texts(column: pa.Array) -> tuple[str, ...]:
    """Return values as readable text of at most ``NAME`` characters; "" for types without text.

    >>> value_texts(pa.array(["a", "b" * 99])), value_texts(pa.array([b"\x01"]))
    (('a', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb…'), ('01',))
    """
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = [value.hex() for value in pc.binary_slice(column, 0, NAME).to_pylist()]
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = pc.utf8_slice_codeunits(column, 0, NAME + 1).to_pylist()
    else:
        try:
            texts = column.cast(pa.string()).to_pylist()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            texts = [""] * len(column)
    return tuple(text if len(text) <= NAME else f"{text[: NAME - 1]}…" for text in texts)


def _unfamiliar(hashes: U64, seen: U64) -> Bools:
    """Return the mask of hashes that are not in ``seen``; it is True also for a few that are in it.

    The table has one slot per value of a hash's low bits. It fits the fastest cache, and the few
    hashes of ``seen`` seldom collide. An empty slot holds a hash that belongs in another slot.
    """
    table = np.arange(_SLOTS, dtype=np.uint64) ^ np.uint64(1)
    low = _SLOTS - np.uint64(1)
    table[(seen & low).view(np.int64)] = seen
    strange: Bools = table[(hashes & low).view(np.int64)] != hashes
    return strange


def _few(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return a task's ranked rows as one record batch, with the ``SIZE`` rows of least rank."""
    one = len(batches) == 1 and batches[0].num_rows <= SIZE
    return batches[0] if one else least(batches)


def _picked(rows: pa.RecordBatch, chosen: NDArray[np.int64], ranks: U64) -> pa.RecordBatch:
    names = [f.name for f in rows.schema if not is_nested(f.type)][:COLUMNS]
    taken = rows.select(names).take(pa.array(chosen))
    columns = [_short(plain(column)) for column in taken.columns]
    return pa.RecordBatch.from_arrays([pa.array(ranks), *columns], names=[RANK, *names])


def _short(column: pa.Array) -> pa.Array:
    """Return ``column`` with values cut to the length ``TEXT`` if they are longer on average."""
    kind = column.type
    if column.nbytes <= TEXT * len(column):
        return column
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.utf8_slice_codeunits(column, 0, TEXT)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pc.binary_slice(column, 0, TEXT)
    return column

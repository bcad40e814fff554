"""Measurements of streams and keys: small values that can be merged across tasks and batches.

Each depends only on the multiset of its tuples, not on their split into tasks and batches, so parts
merge in any order (``docs/statistics.md``):

* a **sketch** of a key is its ``SIZE`` least distinct hashes; sketches of parts merge into that of
  the whole (:func:`anabranch_runtime.index.hash_index.merge_sketches`);
* a **sample** of a stream is its ``SIZE`` tuples whose sigma has the least hash: uniform, without
  replacement, because the hash does not depend on the values;
* **delays** are histograms, by powers of two, of event times behind the stream's greatest one.

Hashes are kept as base64 of little-endian words: a fifth of the text that JSON lists would take.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from anabranch_runtime.columns.arrays import U64
from anabranch_runtime.index.hash_index import merge_sketches

#: Maximum number of hashes of a sketch, and of tuples of a sample.
SIZE = 256
#: Prefix of stores' names as keys in mappings of sketches; keys without it are relations.
STORE = "store:"
#: Column of a sample: hash of each tuple's arrival number (sigma).
RANK = "#rank"
#: If a sketch's greatest hash is below this, the key has many values, and hardly any hash of a
#: batch is below the greatest one. Tasks then get only this greatest hash, as a threshold.
SPARSE = (1 << 64) // 64


@dataclass(frozen=True, slots=True)
class StreamMeter:
    """Counts and event times of one stream, in one epoch or in a task's share of a batch.

    Attributes:
        input, late, invalid, ahead: numbers of all, late, invalid and future tuples.
        min_tau, max_tau: least event time of tuples that were not late; greatest event time.
        since: greatest event time before the epoch; None before the first event time.
        delays: number of tuples per class of :func:`delay_classes`, without trailing zeros.
    """

    input: int = 0
    late: int = 0
    invalid: int = 0
    min_tau: int | None = None
    max_tau: int | None = None
    since: int | None = None
    delays: tuple[int, ...] = ()
    ahead: int = 0

    def __add__(self, other: StreamMeter) -> StreamMeter:
        return StreamMeter(
            self.input + other.input,
            self.late + other.late,
            self.invalid + other.invalid,
            min(_known(self.min_tau, other.min_tau), default=None),
            max(_known(self.max_tau, other.max_tau), default=None),
            self.since,
            add_counts(self.delays, other.delays),
            self.ahead + other.ahead,
        )


@dataclass(frozen=True, slots=True)
class KeyBound:
    """Threshold of one sketch of distinct values: a task reports only hashes that are new to it.

    Attributes:
        limit: hashes from this one on can't enter the sketch; None: every hash may enter.
        known: hashes in the sketch, packed; empty if so few of a batch's hashes are below ``limit``
            that all of them are reported.
    """

    limit: int | None = None
    known: str = ""


@dataclass(frozen=True, slots=True)
class KnownValues:
    """The frequent values of a key that tasks count exactly.

    Attributes:
        hashes: hashes of the values, packed.
        worth, least: a task reports any other value if at least this share and this number of its
            tuples have it.
    """

    hashes: str
    worth: float
    least: int = 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Thresholds of all sketches and samples: tasks report only values that would change these.

    Attributes:
        keys: relation, or ``STORE`` + store -> key -> threshold of its sketch, if it has one.
        ranks: stream -> rank at or above which a tuple can't enter the sample.
        newest: stream -> greatest event time of earlier batches.
        values: relation -> attribute -> its frequent values (``state.values``), if any are known.
    """

    keys: dict[str, dict[str, KeyBound]] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    values: dict[str, dict[str, KnownValues]] = field(default_factory=dict)


def pack(hashes: U64) -> str:
    """Encode a sketch's hashes as base64 text.

    >>> unpack(pack(np.array([3, 1 << 63], dtype=np.uint64))).tolist()
    [3, 9223372036854775808]
    """
    return base64.b64encode(hashes.astype("<u8", copy=False).tobytes()).decode()


def unpack(text: str) -> U64:
    """Decode the hashes in a base64 text of :func:`pack`."""
    return np.frombuffer(base64.b64decode(text), dtype="<u8")


def merge_packed(parts: Iterable[str]) -> str:
    """Merge packed sketches into the sketch of the union of their values."""
    return pack(merge_sketches([unpack(p) for p in parts], SIZE))


# Large enough for the sketches of thousands of queries, since every batch needs all bounds.
@lru_cache(maxsize=1 << 16)
def key_bound(sketch: str) -> KeyBound:
    """Return the threshold by which tasks report only hashes that a packed sketch lacks."""
    hashes = unpack(sketch)
    if len(hashes) < SIZE:
        return KeyBound(None, sketch)
    limit = int(hashes[-1])
    return KeyBound(limit, "" if limit < SPARSE else sketch)


def least(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the ``SIZE`` rows of least rank in record batches of one schema, ordered by rank."""
    rows = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
    order = np.argsort(rows.column(RANK).to_numpy(), kind="stable")[:SIZE]
    return rows.take(pa.array(order))


def delay_classes(behind: np.typing.NDArray[np.int64]) -> tuple[int, ...]:
    """Count positive delays (µs) by class; class ``n`` ends before ``2**n`` µs."""
    if len(behind) == 0:
        return ()
    # A float64 may round a delay of centuries up into the next class, which does no harm.
    _, classes = np.frexp(behind.astype(np.float64))
    return tuple(np.bincount(classes).tolist())


def _known(*times: int | None) -> list[int]:
    return [t for t in times if t is not None]


def add_counts(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """Add two histograms of delays class by class.

    >>> add_counts((1, 2), (0, 1, 5))
    (1, 3, 5)
    """
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return (*(a + b for a, b in zip(longer, shorter, strict=False)), *longer[len(shorter) :])

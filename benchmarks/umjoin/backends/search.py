"""Search of a backend's runs: immutable sets of rows with an index for every key, on disk or in
memory.

The runs are fixed until the next insert or commit, so their description is computed once (a
:class:`View`): addresses of indexes and columns, and each run's range of ``#sigma`` and ``#tau``,
by which most runs are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_runtime.errors import StateError
from anabranch_runtime.index.hash_index import HashIndex
from anabranch_runtime.index.keys import KeyVector, key_vector, values_equal
from anabranch_runtime.index.matching import (
    ANY,
    Constraint,
    Matches,
    Probes,
    TooManyPairs,
    described,
    in_order,
    match,
)
from anabranch_runtime.storage.partial import RowSet, Table, Tables, narrow
from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey
from benchmarks.umjoin.backends.counting import pairs_of, runs
from benchmarks.umjoin.backends.interface import I32, Bounds, Found, Ints, TableSpec

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of a view with their index; the ranges are inclusive."""

    table: Table
    index: HashIndex
    sigma: tuple[int, int]
    tau: tuple[int, int] | None


class View:
    """Several runs, searched as one index."""

    def __init__(self, key: IndexKey, runs: Sequence[Run]) -> None:
        self._key = key
        self._runs = tuple(runs)
        self._tables = Tables([r.table for r in runs])
        self._indexes = described([r.index for r in runs])
        self._sigma = np.array([r.sigma for r in runs], np.int64).reshape(-1, 2)
        taus = [(LEAST, GREATEST) if r.tau is None else r.tau for r in runs]
        self._tau = np.array(taus, np.int64).reshape(-1, 2)

    def search(self, keys: Sequence[pa.Array], bounds: Bounds, most: int) -> Iterator[Found]:
        """Search the runs; arguments and result as for ``Table.probe``."""
        if not self._runs or not len(keys[0]):
            return
        vector = key_vector(keys, self._key.types)
        probes = in_order(vector.hashes, present_at(vector))
        near = np.flatnonzero(self._near(bounds))
        if not len(near) or not len(probes):
            return
        whole = len(near) == len(self._runs)
        indexes = self._indexes if whole else self._indexes[near]
        constraints = self._constraints(near, bounds, len(vector))
        for found in _in_pieces(probes, indexes, constraints, most):
            if not len(found.positions):
                continue
            which: NDArray[np.integer[Any]] | None = None
            if len(self._runs) > 1:
                which = np.repeat(near, found.found).astype(narrow(len(self._runs)))
            pairs = Found(found.positions, RowSet(self._tables, which, found.rows))
            if not vector.exact:
                pairs = checked(self._key, keys, pairs)
            if len(pairs.positions):
                yield pairs

    def _near(self, bounds: Bounds) -> NDArray[np.bool_]:
        """Return, for each run, whether it may have a row within the bounds."""
        near = np.ones(len(self._runs), np.bool_)
        if bounds.before is not None:
            near &= self._sigma[:, 0] < bounds.before.max()
        if bounds.low is not None:
            near &= self._tau[:, 1] >= bounds.low.min()
        if bounds.high is not None:
            near &= self._tau[:, 0] <= bounds.high.max()
        return near

    def _constraints(self, near: Ints, bounds: Bounds, length: int) -> list[Constraint]:
        found = []
        if bounds.before is not None:
            columns = self._tables.places(SIGMA).first[near]
            columns[self._sigma[near, 1] < bounds.before.min()] = 0
            if columns.any():
                least = np.full(length, LEAST)
                found.append(Constraint(columns, least, bounds.before - 1))
        if bounds.low is not None or bounds.high is not None:
            low = np.full(length, LEAST) if bounds.low is None else bounds.low
            high = np.full(length, GREATEST) if bounds.high is None else bounds.high
            found.append(Constraint(self._tables.places(TAU).first[near], low, high))
        return found


def _in_pieces(
    probes: Probes, indexes: Ints, constraints: Sequence[Constraint], most: int
) -> Iterator[Matches]:
    """Yield all matches, in pieces of about ``most`` pairs.

    Usually there are fewer pairs. So they are counted in advance only after a first attempt has
    shown that there are more.
    """
    try:
        found = match(probes, indexes, constraints, most=ANY if len(probes) == 1 else most)
    except TooManyPairs:
        counts = pairs_of(probes.hashes, indexes)
        hit = counts > 0
        probes, counts = probes.where(hit), counts[hit]
        for first, end in runs(counts, most):
            piece = Probes(probes.hashes[first:end], probes.order[first:end])
            yield match(piece, indexes, constraints)
    else:
        yield found


def present_at(vector: KeyVector) -> Ints | None:
    """Return the positions of keys that are not NULL; None if no key is NULL."""
    return None if vector.valid is None else np.flatnonzero(vector.valid)


def checked(index: IndexKey, keys: Sequence[pa.Array], pairs: Found) -> Found:
    """Return the pairs of equal hashes whose keys are equal values."""
    positions = pa.array(pairs.positions)
    wanted = [k.take(positions) for k in keys]
    stored = [pairs.rows.column(c) for c in index.columns]
    equal = values_equal(wanted, stored, index.types)
    return pairs if equal.all() else chosen(pairs, np.flatnonzero(equal).astype(np.int32))


def within(pairs: Found, bounds: Bounds) -> Found:
    """Return the pairs whose rows are within ``bounds``."""
    kept = np.ones(len(pairs.positions), np.bool_)
    if bounds.before is not None:
        kept &= pairs.rows.int64(SIGMA) < bounds.before[pairs.positions]
    if bounds.low is not None:
        kept &= pairs.rows.int64(TAU) >= bounds.low[pairs.positions]
    if bounds.high is not None:
        kept &= pairs.rows.int64(TAU) <= bounds.high[pairs.positions]
    return pairs if kept.all() else chosen(pairs, np.flatnonzero(kept).astype(np.int32))


def chosen(pairs: Found, kept: I32) -> Found:
    """Return the pairs at the positions ``kept``."""
    return Found(pairs.positions[kept], pairs.rows.take(kept))


def known(spec: TableSpec, index: IndexKey) -> IndexKey:
    """Return ``index``, which must be one of the table's.

    Raises:
        StateError: ``no-index``.
    """
    if index in spec.indexes:
        return index
    raise StateError(
        "no-index",
        f"the table has no index {index.name!r}",
        field="index",
        remedy="name it when the backend is opened",
    )

"""Rows inserted by a backend's open batch: in memory until the commit, probed like stored rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.index.hash_index import HashIndex, build_index, merge_indexes
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey
from benchmarks.umjoin.backends.interface import TableSpec
from benchmarks.umjoin.backends.search import Run

#: Minimum ratio of the sizes of a part and the next one, so that there are few parts.
_RATIO = 2


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the open batch's rows, with indexes."""

    table: BatchTable
    indexes: dict[IndexKey, HashIndex]
    sigma: tuple[int, int]
    tau: tuple[int, int] | None

    @property
    def rows(self) -> pa.RecordBatch:
        """The rows of the part."""
        return self.table.batch

    @property
    def bytes(self) -> int:
        """Size in bytes of the part's rows and indexes."""
        arrays = [a for i in self.indexes.values() for a in (i.hashes, i.rows, i.starts, i.filter)]
        return int(self.rows.nbytes) + sum(a.nbytes for a in arrays)

    def run(self, key: IndexKey) -> Run:
        """Return the part as a run of a view (:mod:`.search`), with the index for ``key``."""
        return Run(self.table, self.indexes[key], self.sigma, self.tau)


def part_of(spec: TableSpec, rows: pa.RecordBatch) -> Part:
    """Return a part of ``rows`` (at least one), with its indexes.

    Raises:
        KeyTypeError: a column can't be a key of its index's type.
    """
    indexes = {
        key: build_index(key_vector([rows.column(c) for c in key.columns], key.types))
        for key in spec.indexes
    }
    tau = least_and_greatest(rows, TAU) if spec.timed else None
    return Part(BatchTable(rows), indexes, least_and_greatest(rows, SIGMA), tau)


def joined(parts: list[Part]) -> Part:
    """Concatenate parts, in the order of their rows."""
    if len(parts) == 1:
        return parts[0]
    rows = pa.concat_batches([p.rows for p in parts])
    indexes = {
        key: merge_indexes([(p.indexes[key], p.rows.num_rows) for p in parts])
        for key in parts[0].indexes
    }
    sigmas, taus = [p.sigma for p in parts], [p.tau for p in parts if p.tau is not None]
    tau = (min(a for a, _ in taus), max(b for _, b in taus)) if taus else None
    sigma = (min(a for a, _ in sigmas), max(b for _, b in sigmas))
    return Part(BatchTable(rows), indexes, sigma, tau)


def append(parts: list[Part], part: Part) -> None:
    """Add a part, then concatenate the last parts until each is larger than the next. So a row is
    copied a number of times that is logarithmic in the number of inserted rows.
    """
    tail = [part]
    rows = part.rows.num_rows
    while parts and parts[-1].rows.num_rows < _RATIO * rows:
        tail.insert(0, parts.pop())
        rows += tail[0].rows.num_rows
    parts.append(joined(tail))


def least_and_greatest(rows: pa.RecordBatch, name: str) -> tuple[int, int]:
    """Return the least and the greatest value of an int64 column without NULLs."""
    values = rows.column(name).to_numpy(zero_copy_only=True)
    return int(values.min()), int(values.max())

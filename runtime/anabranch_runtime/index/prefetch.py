"""Prefetching pages of mapped columns and indexes before a kernel touches them one by one.

This is useful only if the mapped state exceeds memory (``storage.paging``), because the operating
system's read-ahead is then off. Loading a page by a page fault takes some 50 times as long as in a
run of pages that is fetched at once. So a column is prefetched completely if enough of its pages
will be touched; otherwise each touched page is loaded by its page fault.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import U64, Ints
from anabranch_runtime.index.filters import bits_of, word_of
from anabranch_runtime.index.words import load64

_PAGE = mmap.PAGESIZE
_WILL_NEED: int | None = getattr(mmap, "MADV_WILLNEED", None)
#: A memory range is prefetched if it has at most this many pages for each place to be read.
_RUN = 8
#: Number of probes tested by a filter to estimate how many pass it.
_TRIED = 512
#: Of so many probes without a match, one passes the filter all the same; it reads hashes only.
_WRONG = 40

_asking = False
_advise = ctypes.CDLL(None).madvise if _WILL_NEED is not None else None


def enable(wanted: bool) -> None:
    """Set whether this process prefetches pages of mapped files from now on."""
    global _asking
    _asking = wanted and _advise is not None


def is_enabled() -> bool:
    """Whether this process prefetches pages of mapped files before kernels read them."""
    return _asking


def for_probes(hashes: U64, segments: Ints, columns: Ints) -> None:
    """Before ``kernels.match``, prefetch filters, indexes with enough probes that pass the filter,
    and columns of constraints.

    Args:
        hashes: hashes of the probes.
        segments, columns: arguments of ``kernels.match``.
    """
    probes = len(hashes)
    step = max(1, probes // _TRIED)
    sample = hashes[::step].copy()
    for number, (stored, rows, starts, shift, entries, screen, words) in enumerate(
        segments.tolist()
    ):
        looks = hits = probes
        if screen:
            _range(screen, 8 * words, probes)
            looks = _passing(sample, screen, words) * step
            hits = looks - probes // _WRONG
        _range(stored, 8 * entries, looks)
        _range(starts, 4 * ((1 << 64 - shift) + 1), looks)
        _range(rows, 4 * entries, hits)
        for constraint in columns.tolist():
            if constraint[number]:
                _range(constraint[number], 8 * entries, hits)


def for_rows(
    columns: Sequence[pa.Array], which: NDArray[np.integer[Any]] | None, rows: int
) -> None:
    """Before a column is gathered, prefetch it in the tables that contribute enough rows.

    Args:
        columns: the column in each table.
        which: per row, the index of its table; None: all rows are of the first table.
        rows: number of rows to gather.
    """
    several = len(columns)
    counts = [rows] if which is None else np.bincount(which, minlength=several).tolist()
    for column, wanted in zip(columns, counts, strict=False):
        if wanted:
            for buffer in column.buffers():
                if buffer is not None:
                    _range(buffer.address, buffer.size, wanted)


def _range(first: int, size: int, touched: int) -> None:
    """Prefetch a memory range if enough places in it (``touched``) will be read."""
    if touched <= 0 or touched * _RUN * _PAGE < size or size <= _PAGE:
        return
    begin = first - first % _PAGE
    assert _advise is not None
    # For memory that is not mapped from a file, this has no effect.
    _advise(ctypes.c_void_p(begin), ctypes.c_size_t(first + size - begin), _WILL_NEED)


@njit(cache=True, nogil=True)  # type: ignore[misc,unused-ignore]
def _passing(hashes: U64, screen: int, words: int) -> int:
    """Estimate how many of the probes' ``hashes`` pass a segment's filter."""
    found = 0
    for k in range(len(hashes)):
        bits = bits_of(hashes[k])
        found += load64(screen, word_of(hashes[k], words)) & bits == bits
    return found


def warm() -> None:
    """Compile the kernel that estimates how many probes pass a filter."""
    words = np.zeros(1, np.uint64)
    _passing(words, words.ctypes.data, 1)

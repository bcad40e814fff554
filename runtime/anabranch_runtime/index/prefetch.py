"""Prefetching pages of mapped columns and indexes before a kernel of ours touches them one by one.

Of use only where mapped state is more than memory holds (``storage.paging``), so that pages are not
read ahead by themselves: a page that a kernel waits for takes some 50 times as long as one of a
run that is fetched at once. So where enough of a column's pages will be wanted, all are asked
for. Where few are, each comes when it is touched.
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
#: Pages of a run that are fetched where one of them is wanted, at most.
_RUN = 8
#: Probes that are tried on a filter to know how many will pass.
_TRIED = 512
#: One in so many probes that pass a filter has nothing to find; it looks no further than hashes.
_WRONG = 40

_asking = False
_advise = ctypes.CDLL(None).madvise if _WILL_NEED is not None else None


def enable(wanted: bool) -> None:
    """Set whether this process prefetches pages from now on."""
    global _asking
    _asking = wanted and _advise is not None


def is_enabled() -> bool:
    """Whether they are."""
    return _asking


def for_probes(hashes: U64, segments: Ints, columns: Ints) -> None:
    """Before ``kernels.match``: prefetch the filters, the indexes where enough probes pass, and the
    columns that constraints look at.

    Args:
        hashes: of the probes.
        segments, columns: as ``kernels.match`` has them.
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
    """Before a column is gathered: prefetch it in each table with enough wanted rows.

    Args:
        columns: the column in each table.
        which: the table of each row; None: all are of the first.
        rows: number of wanted rows.
    """
    several = len(columns)
    counts = [rows] if which is None else np.bincount(which, minlength=several).tolist()
    for column, wanted in zip(columns, counts, strict=False):
        if wanted:
            for buffer in column.buffers():
                if buffer is not None:
                    _range(buffer.address, buffer.size, wanted)


def _range(first: int, size: int, touched: int) -> None:
    """Prefetch the pages of a range with ``touched`` places to read, if it is worth it."""
    if touched <= 0 or touched * _RUN * _PAGE < size or size <= _PAGE:
        return
    begin = first - first % _PAGE
    assert _advise is not None
    # An address that is not mapped from a file is no matter: there is nothing to read then.
    _advise(ctypes.c_void_p(begin), ctypes.c_size_t(first + size - begin), _WILL_NEED)


@njit(cache=True, nogil=True)  # type: ignore[misc,unused-ignore]
def _passing(hashes: U64, screen: int, words: int) -> int:
    """How many of ``hashes`` a filter lets pass."""
    found = 0
    for k in range(len(hashes)):
        bits = bits_of(hashes[k])
        found += load64(screen, word_of(hashes[k], words)) & bits == bits
    return found


def warm() -> None:
    """Compile the kernels."""
    words = np.zeros(1, np.uint64)
    _passing(words, words.ctypes.data, 1)

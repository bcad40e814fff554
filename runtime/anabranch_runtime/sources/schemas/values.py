"""Arrow columns from the values that decoding kernels have found in messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import Bools, Ints


def bytes_column(data: NDArray[np.uint8], places: Ints, sizes: Ints, present: Bools) -> pa.Array:
    """Return the binary values of messages at ``places``; absent values have the size 0."""
    limits = np.zeros(len(places) + 1, np.int32)
    found = np.empty(int(sizes.sum()), np.uint8)
    _gather(data, places, sizes, limits, found)
    buffers = [bitmap(present), pa.py_buffer(limits), pa.py_buffer(found)]
    return pa.Array.from_buffers(pa.binary(), len(places), buffers)


def bitmap(present: Bools) -> pa.Buffer:
    """Return the mask of present values as validity bits of an Arrow column."""
    return pa.py_buffer(np.packbits(present, bitorder="little"))


@njit(cache=True, nogil=True)
def _gather(data: Any, places: Any, sizes: Any, limits: Any, found: Any) -> None:
    """Copy the bytes at ``places`` to ``found``; write the offsets of the copies (``limits``)."""
    end = 0
    for i in range(len(places)):
        for k in range(sizes[i]):
            found[end + k] = data[places[i] + k]
        end += sizes[i]
        limits[i + 1] = end

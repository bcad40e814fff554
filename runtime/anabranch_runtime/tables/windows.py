"""Repetition of joined rows, for time windows and grouping sets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.views import TimeWindow, View
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.tables.inputs import Inputs
from anabranch_runtime.tables.words import integers_of


def windows(window: TimeWindow, rows: Inputs) -> tuple[Ints, Ints]:
    """Return pairs of row and time window: the row's number and the window's start. A row without
    a time is in none.
    """
    times = rows.column(window.column)
    moments = integers_of(times)
    valid = rows.valid(window.column)
    numbers = np.flatnonzero(valid) if len(valid) else np.arange(len(moments))
    moments = moments[numbers]
    newest = moments - (moments - window.start) % window.slide
    if window.length == window.slide:
        return numbers, newest
    found, starts = [], []
    for n in range(-(-window.length // window.slide)):
        start = newest - n * window.slide
        inside = start + window.length > moments
        found.append(numbers[inside])
        starts.append(start[inside])
    return np.concatenate(found), np.concatenate(starts)


def grouping_ids(view: View) -> list[int]:
    """Return the id of each grouping set, as ``grouping_id()`` in Spark."""
    last = len(view.keys) - 1
    return [sum(1 << (last - n) for n in range(last + 1) if n not in s) for s in view.sets]


def grouping_keys(view: View, keys: list[pa.Array]) -> list[pa.Array]:
    """Return the keys for each grouping set after the other: NULL where a set has no key."""
    found = []
    for n, key in enumerate(keys):
        nothing = pa.nulls(len(key), key.type)
        found.append(pa.concat_arrays([key if n in s else nothing for s in view.sets]))
    return found

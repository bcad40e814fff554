"""Tests of tuples and deletes that cancel in a merge of segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.queries.changes import TUPLE_WEIGHT
from anabranch_runtime.task.weights import cancelled, net_changes

_VALUES = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")])
_TEXTS = st.sampled_from([None, "", "a"])
_ROWS = st.lists(
    st.tuples(_VALUES, _TEXTS, st.sampled_from([1, -1, 0]), st.integers(0, 6), st.integers(0, 2)),
    min_size=1,
)


def rows_of(rows: Sequence[tuple[float | None, str | None, int, int, int]]) -> pa.RecordBatch:
    values, texts, weights, *_ = (list(c) for c in zip(*rows, strict=True))
    return pa.record_batch(
        {
            "x": pa.array(values, pa.float64()),
            "t": pa.array(texts, pa.string()),
            TUPLE_WEIGHT: pa.array(weights, pa.int8()),
        }
    )


@given(_ROWS, st.lists(st.integers(0, 6), max_size=2).map(sorted))
def test_sums_stay_in_every_range_of_batches(
    rows: list[tuple[float | None, str | None, int, int, int]], cells: list[int]
) -> None:
    """For each value and range of batches the sum of weights stays, and no more pairs
    can cancel.
    """
    batch, place = (np.array([row[at] for row in rows], np.int64) for at in (3, 4))
    ranks = np.argsort(np.lexsort((place, batch)))
    gone = cancelled(rows_of(rows), ["x", "t"], batch, ranks, cells)
    kept = [True] * len(rows) if gone is None else (~gone).tolist()
    assert any(kept)
    signs: dict[object, list[int]] = {}
    before, after = Counter[object](), Counter[object]()
    for at in np.argsort(ranks).tolist():
        value, text, weight, *_ = rows[at]
        name = (str(value), text, int(np.searchsorted(cells, batch[at], side="right")))
        before[name] += weight
        if kept[at]:
            after[name] += weight
            signs.setdefault(name, []).append(weight)
    assert {k: n for k, n in before.items() if n} == {k: n for k, n in after.items() if n}
    pairs = [name for name, own in signs.items() if 1 in own and -1 in own[own.index(1) :]]
    assert len(pairs) <= 1  # where all would cancel: no segment is empty


@given(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=12))
def test_the_current_row_of_a_key_stays(versions: list[str]) -> None:
    """Each version replaces the previous one; a probe finds the last row."""
    rows = [(0.0, text, 1, at, 0) for at, text in enumerate(versions)]
    rows += [(0.0, text, -1, at + 1, 0) for at, text in enumerate(versions[:-1])]
    batch, weight = (np.array([row[at] for row in rows], np.int64) for at in (3, 2))
    ranks = np.argsort(np.lexsort((weight, batch)))
    gone = cancelled(rows_of(rows), ["x", "t"], batch, ranks, ())
    kept = rows if gone is None else [rows[at] for at in np.flatnonzero(~gone)]
    assert kept == [(0.0, versions[-1], 1, len(versions) - 1, 0)]


def test_without_deletes_nothing_cancels() -> None:
    rows = rows_of([(1.5, "a", 1, 0, 0), (1.5, "a", 1, 1, 0)])
    assert cancelled(rows, ["x", "t"], np.arange(2), np.arange(2), ()) is None


@given(
    st.lists(
        st.tuples(st.sampled_from([None, 0.0, -0.0, 2.5]), st.sampled_from(["insert", "delete"]))
    )
)
def test_changes_of_equal_rows_cancel(rows: list[tuple[float | None, str]]) -> None:
    columns = {
        "x": pa.array([x for x, _ in rows], pa.float64()),
        "anabranch_change": pa.array([kind for _, kind in rows], pa.string()),
    }
    found = net_changes(pa.record_batch(columns))

    def net(changes: Iterable[tuple[float | None, str]]) -> dict[str, int]:
        sums = Counter[str]()
        for x, kind in changes:
            sums[str(x)] += 1 if kind == "insert" else -1
        return {x: n for x, n in sums.items() if n}

    left = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert net(left) == net(rows)
    assert len(left) == sum(map(abs, net(rows).values()))

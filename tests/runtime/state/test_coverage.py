"""Compare tiles over store generations with sets of batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.state.coverage import Interval, covered_since, subtract, tile

_INTERVAL = st.tuples(st.integers(0, 14), st.integers(0, 5)).map(lambda x: (x[0], x[0] + x[1]))


@st.composite
def _disjoint(draw: st.DrawFn) -> list[Interval]:
    """Draw intervals as one store has them: in order, separate or adjacent."""
    cuts = sorted(draw(st.sets(st.integers(0, 20), max_size=8)))
    if len(cuts) % 2:
        cuts.pop()
    return [(a, b - 1) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]


_STORES = st.lists(_disjoint(), max_size=4).map(
    lambda stores: [(f"s{i}", intervals) for i, intervals in enumerate(stores)]
)


def _batches(intervals: list[Interval]) -> list[int]:
    return [b for low, high in intervals for b in range(low, high + 1)]


@given(wanted=_disjoint(), stores=_STORES)
def test_tiles_and_gaps_are_a_partition_of_what_is_wanted(
    wanted: list[Interval], stores: list[tuple[str, list[Interval]]]
) -> None:
    tiles, gaps = tile(wanted, stores)
    answered = [b for t in tiles for b in _batches([t.interval])]

    assert sorted(answered + _batches(gaps)) == _batches(wanted)
    held = {b for _, intervals in stores for b in _batches(intervals)}
    assert set(answered) == held & set(_batches(wanted))
    assert all(low <= high for low, high in (*gaps, *(t.interval for t in tiles)))


@given(wanted=_disjoint(), stores=_STORES)
def test_each_batch_is_answered_by_the_first_store_that_has_it(
    wanted: list[Interval], stores: list[tuple[str, list[Interval]]]
) -> None:
    tiles, _ = tile(wanted, stores)
    for one in tiles:
        for batch in _batches([one.interval]):
            first = next(name for name, spans in stores if batch in _batches(list(spans)))
            assert one.store == first


@given(interval=_INTERVAL, holes=st.lists(_INTERVAL, max_size=4))
def test_subtract_is_set_difference(interval: Interval, holes: list[Interval]) -> None:
    left = subtract(interval, holes)
    assert _batches(left) == sorted(set(_batches([interval])) - set(_batches(holes)))


@given(now=st.integers(1, 20), stores=_STORES)
def test_covered_since_is_the_start_of_the_unbroken_tail(
    now: int, stores: list[tuple[str, list[Interval]]]
) -> None:
    spans = [[(a, min(b, now - 1)) for a, b in s if a < now] for _, s in stores]
    held = {b for s in spans for b in _batches(s)}
    low = covered_since(now, spans)
    assert set(range(low, now)) <= held
    assert low == 0 or low - 1 not in held

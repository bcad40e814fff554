"""Compare matrices of time differences with enumerated event times."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Bounds
from anabranch_planner.normal import time_bounds as matrices

NAMES = ("R", "S", "T", "U")


@st.composite
def matrix(draw: st.DrawFn, low: int = -2) -> Bounds:
    size = draw(st.integers(1, 4))
    entry = st.one_of(st.none(), st.integers(low, 4))
    return tuple(tuple(0 if i == j else draw(entry) for j in range(size)) for i in range(size))


def satisfies(times: tuple[int, ...], bounds: Bounds) -> bool:
    return all(
        bound is None or times[j] - times[i] <= bound
        for i, row in enumerate(bounds)
        for j, bound in enumerate(row)
    )


def solutions(bounds: Bounds, reach: int = 6) -> set[tuple[int, ...]]:
    """Return all small integer solutions with the first time at 0."""
    rest = itertools.product(range(-reach, reach + 1), repeat=len(bounds) - 1)
    return {(0, *times) for times in rest if satisfies((0, *times), bounds)}


def shortest(bounds: Bounds, i: int, j: int) -> int | None:
    """Return the minimum sum over all simple paths from i to j."""
    inner = [k for k in range(len(bounds)) if k not in (i, j)]
    best: int | None = None
    for count in range(len(inner) + 1):
        for middle in itertools.permutations(inner, count):
            path = (i, *middle, j)
            steps = [bounds[a][b] for a, b in itertools.pairwise(path)]
            if all(s is not None for s in steps):
                total = sum(s or 0 for s in steps)
                best = total if best is None else min(best, total)
    return best


@given(matrix())
def test_closing_is_all_shortest_paths_or_an_error(bounds: Bounds) -> None:
    size = len(bounds)
    # A cycle through i and j consists of a path from i to j and one back.
    negative = any(
        (there := shortest(bounds, i, j)) is not None
        and (back := shortest(bounds, j, i)) is not None
        and there + back < 0
        for i in range(size)
        for j in range(i)
    )
    if negative:
        with pytest.raises(QueryError) as caught:
            matrices.close(bounds, NAMES[:size])
        assert caught.value.code == "unsatisfiable-time-bounds"
        assert not solutions(bounds)
        return
    closed = matrices.close(bounds, NAMES[:size])
    for i in range(size):
        for j in range(size):
            assert closed[i][j] == (0 if i == j else shortest(bounds, i, j))
    assert solutions(closed) == solutions(bounds)


def test_windows_bound_every_other_alias() -> None:
    windows = matrices.from_windows(("R", "S", "T"), {"R": 5, "T": 0, "S": None})
    assert windows == ((0, 5, 5), (None, 0, None), (0, 0, 0))


def test_a_negative_cycle_names_its_aliases_only() -> None:
    d = matrices.intersect(matrices.single(4, 1, 2, 3), matrices.single(4, 2, 1, -4))
    with pytest.raises(QueryError, match=r"among S, T contradict") as caught:
        matrices.close(d, NAMES)
    assert caught.value.remedy


def test_the_diagonal_is_zero_or_a_contradiction() -> None:
    assert matrices.close(matrices.single(2, 0, 0, 7), NAMES[:2]) == ((0, None), (None, 0))
    with pytest.raises(QueryError, match="among R contradict"):
        matrices.close(matrices.single(2, 0, 0, -1), NAMES[:2])


@given(matrix())
def test_bounds_without_redundant_ones_close_to_the_same(bounds: Bounds) -> None:
    try:
        closed = matrices.close(bounds, NAMES[: len(bounds)])
    except QueryError:
        return
    kept = matrices.irredundant(closed)
    assert matrices.close(kept, NAMES[: len(bounds)]) == closed
    for i, j in itertools.permutations(range(len(bounds)), 2):
        bound = kept[i][j]
        if bound is None:
            continue
        assert bound == closed[i][j]
        paths = ((kept[i][k], kept[k][j]) for k in range(len(bounds)) if k not in (i, j))
        sums = [a + b for a, b in paths if a is not None and b is not None]
        assert all(total > bound for total in sums)

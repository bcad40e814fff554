"""Pieces are dealt so that tasks are expected to take equally long, whatever is known."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.sources.dealing import deal, is_uneven, prices
from anabranch_runtime.sources.feed import Piece


def piece(stream: str, rows: int) -> Piece:
    return Piece("file", stream, (), rows, {})


def totals(weights: list[float], tasks: list[int], loads: list[float]) -> list[float]:
    found = list(loads)
    for weight, task in zip(weights, tasks, strict=True):
        found[task] += weight
    return found


WEIGHTS = st.lists(st.integers(0, 1000).map(float), max_size=7)


@given(WEIGHTS, st.integers(1, 3))
def test_no_task_gets_more_than_the_rule_says_of_the_best_deal(
    weights: list[float], tasks: int
) -> None:
    nothing = [0.0] * tasks
    dealt = deal(weights, nothing)
    assert len(dealt) == len(weights)
    assert set(dealt) <= set(range(tasks))
    every = product(range(tasks), repeat=len(weights))
    best = min(max(totals(weights, list(one), nothing)) for one in every)
    assert max(totals(weights, dealt, nothing)) <= (4 / 3 - 1 / (3 * tasks)) * best + 1e-9


@given(
    st.lists(st.floats(0, 1e3), max_size=40),
    st.lists(st.floats(0, 1e3), min_size=1, max_size=9),
)
def test_who_is_dealt_something_has_at_most_a_piece_more_than_the_mean(
    weights: list[float], loads: list[float]
) -> None:
    dealt = deal(weights, loads)
    assert dealt == deal(list(weights), list(loads))
    found = totals(weights, dealt, loads)
    mean, most = sum(found) / len(found), max(weights, default=0.0)
    assert all(found[task] <= mean + most + 1e-6 for task in dealt)


def test_what_tasks_have_already_counts() -> None:
    assert deal([5.0, 5.0], [10.0, 0.0]) == [1, 1]


def test_there_may_be_nothing_and_fewer_pieces_than_tasks() -> None:
    assert deal([], [0.0, 0.0]) == []
    assert deal([1.0, 1.0], [0.0] * 4) == [0, 1]
    assert deal([0.0, 3.0], [0.0, 0.0]) == [1, 0]


def test_a_costly_stream_is_shared_out_by_all_tasks() -> None:
    # By rows, one task would get both pieces of the costly stream.
    pieces = [piece("costly", 101), piece("cheap", 100), piece("cheap", 100), piece("costly", 99)]
    by_rows = deal([float(p.rows) for p in pieces], [0.0, 0.0])
    assert by_rows[0] == by_rows[3]
    price = prices(pieces, {"costly": 1e-5, "cheap": 1e-6})
    weights = [p.rows * price[p.stream] for p in pieces]
    dealt = deal(weights, [0.0, 0.0])
    assert dealt[0] != dealt[3]
    assert is_uneven(weights, by_rows, [0.0, 0.0])
    assert not is_uneven(weights, dealt, [0.0, 0.0])


def test_rows_weigh_alike_where_nothing_is_known() -> None:
    assert prices([piece("a", 3), piece("b", 0)], {}) == {"a": 1.0, "b": 1.0}
    # What is known of a stream that has vanished says nothing of others.
    assert prices([piece("a", 3)], {"gone": 1e-3}) == {"a": 1.0}
    # Nor does that of one without rows.
    assert prices([piece("a", 3), piece("b", 0)], {"b": 1e-3}) == {"a": 1.0, "b": 1.0}
    assert prices([], {"a": 1.0}) == {}


def test_a_new_stream_costs_what_the_others_do_on_average() -> None:
    found = prices([piece("a", 30), piece("b", 10), piece("new", 5)], {"a": 1.0, "b": 5.0})
    assert found == {"a": 1.0, "b": 5.0, "new": pytest.approx(2.0)}


def test_nothing_is_even() -> None:
    assert not is_uneven([], [], [0.0, 0.0])
    assert is_uneven([1.0], [0], [0.0, 0.0])

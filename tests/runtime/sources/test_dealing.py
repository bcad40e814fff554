"""Tests that input pieces are dealt to tasks so that these are expected to take equally long."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.sources.dealing import (
    UNEVEN,
    PieceCost,
    Sites,
    deal,
    is_uneven,
    pieces_of,
    prices,
    weigh,
)
from anabranch_runtime.sources.feed import Piece


def piece(stream: str, rows: int) -> Piece:
    return Piece("file", stream, (), rows, {})


def totals(weights: list[float], tasks: list[int], loads: list[float]) -> list[float]:
    found = list(loads)
    for weight, task in zip(weights, tasks, strict=True):
        found[task] += weight
    return found


def plain(weights: list[float]) -> list[PieceCost]:
    """Return weights of rows that do not probe."""
    return [PieceCost(w) for w in weights]


WEIGHTS = st.lists(st.integers(0, 1000).map(float), max_size=7)


@given(WEIGHTS, st.integers(1, 3))
def test_no_task_gets_more_than_the_rule_says_of_the_best_deal(
    weights: list[float], tasks: int
) -> None:
    nothing = [0.0] * tasks
    dealt = deal(plain(weights), plain(nothing))
    assert len(dealt) == len(weights)
    assert set(dealt) <= set(range(tasks))
    every = product(range(tasks), repeat=len(weights))
    best = min(max(totals(weights, list(one), nothing)) for one in every)
    assert max(totals(weights, dealt, nothing)) <= (4 / 3 - 1 / (3 * tasks)) * best + 1e-9


@given(
    st.lists(st.integers(0, 1000).map(float), max_size=40),
    st.lists(st.integers(0, 1000).map(float), min_size=1, max_size=9),
)
def test_who_is_dealt_something_has_at_most_a_piece_more_than_the_mean(
    weights: list[float], loads: list[float]
) -> None:
    dealt = deal(plain(weights), plain(loads))
    assert dealt == deal(plain(weights), plain(loads))
    found = totals(weights, dealt, loads)
    mean, most = sum(found) / len(found), max(weights, default=0.0)
    assert all(found[t] <= mean + most + 1e-6 for w, t in zip(weights, dealt, strict=True) if w)


def test_what_tasks_have_already_counts() -> None:
    assert deal(plain([5.0, 5.0]), plain([10.0, 0.0])) == [1, 1]


def test_there_may_be_nothing_and_fewer_pieces_than_tasks() -> None:
    assert deal([], [PieceCost(), PieceCost()]) == []
    assert deal(plain([1.0, 1.0]), [PieceCost()] * 4) == [0, 1]
    assert deal(plain([0.0, 3.0]), [PieceCost(), PieceCost()]) == [0, 0]


def test_a_costly_stream_is_shared_out_by_all_tasks() -> None:
    # By number of rows, one task would get both pieces of the expensive stream.
    pieces = [piece("costly", 101), piece("cheap", 100), piece("cheap", 100), piece("costly", 99)]
    nothing = [PieceCost(), PieceCost()]
    by_rows = deal(weigh(pieces, prices(pieces, {})), nothing)
    assert by_rows[0] == by_rows[3]
    weights = weigh(pieces, prices(pieces, {"costly": 1e-5, "cheap": 1e-7}))
    dealt = deal(weights, nothing)
    assert dealt[0] != dealt[3]
    assert is_uneven(weights, by_rows, nothing)
    assert not is_uneven(weights, dealt, nothing)


@pytest.mark.parametrize("seed", range(20))
def test_tasks_are_even_before_the_exchange_as_after_it(seed: int) -> None:
    chance = random.Random(seed)
    streams = {"costly": 1e-5, "cheap": 1e-7, "free": 0.0}
    pieces = [piece(s, chance.randint(500, 1500)) for s in streams for _ in range(12)]
    weights = weigh(pieces, prices(pieces, streams))
    tasks = deal(weights, [PieceCost(), PieceCost()])
    for part in zip(*weights, strict=True):
        found = totals(list(part), tasks, [0.0, 0.0])
        assert 2 * max(found) <= UNEVEN * sum(found)


def test_rows_weigh_alike_where_nothing_is_known() -> None:
    assert prices([piece("a", 3), piece("b", 0)], {}) == {"a": 0.0, "b": 0.0}
    # The cost of a stream that is gone, or has no rows, says nothing about others.
    assert prices([piece("a", 3)], {"gone": 1e-3}) == {"a": 0.0}
    assert prices([piece("a", 3), piece("b", 0)], {"b": 1e-3})["a"] == 0.0
    assert prices([], {"a": 1.0}) == {}


def test_a_new_stream_costs_what_the_others_do_on_average() -> None:
    found = prices([piece("a", 30), piece("b", 10), piece("new", 5)], {"a": 1.0, "b": 5.0})
    assert found == {"a": 1.0, "b": 5.0, "new": pytest.approx(2.0)}


def test_nothing_is_even() -> None:
    assert not is_uneven([], [], [PieceCost(), PieceCost()])
    assert is_uneven([PieceCost(1.0)], [0], [PieceCost(), PieceCost()])


@pytest.mark.parametrize("seed", range(60))
def test_what_arrives_at_a_site_is_read_there_and_all_once(seed: int) -> None:
    rng = random.Random(seed)
    at = [rng.choice("abc") for _ in range(rng.randint(1, 7))]
    sites = Sites({"r": "a", "s": "b"}, {"r": 1e-6, "s": 1e-6, "t": 2e-6})
    pieces = [replace(piece(rng.choice("rst"), rng.randint(1, 999)), number=n) for n in range(20)]
    shares = [pieces[n :: len(at)] for n in range(len(at))]
    found = [sites.share(shares, at, task) for task in range(len(at))]
    read = [(p, site) for share, site in zip(found, at, strict=True) for p in share]
    assert sorted(p.number for p, _ in read) == list(range(20))
    for one, site in read:
        wanted = sites.of.get(one.stream)
        assert wanted in (None, site) or wanted not in at
    if set(at).isdisjoint("ab"):
        assert found == [pieces_of(shares, task, len(at)) for task in range(len(at))]


def test_what_has_no_site_makes_up_for_what_has() -> None:
    pieces = [*(piece("r", 100) for _ in range(4)), *(piece("t", 100) for _ in range(8))]
    sites = Sites({"r": "a"}, {"r": 1e-6, "t": 1e-6})
    found = [sites.share([pieces], ["a", "b", "b"], task) for task in range(3)]
    assert [len(share) for share in found] == [4, 4, 4]
    assert {p.stream for p in found[0]} == {"r"}


def test_there_may_be_fewer_shares_than_tasks() -> None:
    pieces = [piece("r", 1), piece("t", 1)]
    sites = Sites({"r": "b"}, {"r": 1e-6, "t": 1e-6})
    found = [sites.share([pieces], ["a", "b", "c"], task) for task in range(3)]
    assert [[p.stream for p in share] for share in found].count([]) == 1
    assert "r" in [p.stream for p in found[1]]

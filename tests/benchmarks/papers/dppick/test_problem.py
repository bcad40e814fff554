"""Tests of probe orders' costs, computed by hand, and of refused operators."""

from __future__ import annotations

import math

import pytest

from anabranch_contract.errors import PlannerError, StatisticsError
from benchmarks.papers.dppick.figures import EdgeFigures, Match, SizeFigures
from benchmarks.papers.dppick.problem import (
    Accounting,
    Operator,
    Prices,
    constant,
    edges_near,
    hash_table,
    order_cost,
    sorted_array,
)

CHAIN = {
    (0, 1): Match(0.5, 4.0), (1, 0): Match(1.0, 1.0),
    (1, 2): Match(0.25, 8.0), (2, 1): Match(0.75, 2.0),
}  # fmt: skip


def chain(accounting: Accounting, weights: tuple[float, ...] = (1.0, 1.0, 1.0)) -> Operator:
    return Operator(
        names=("a", "b", "c"),
        weights=weights,
        keys=(8.0, 16.0, 32.0),
        rows=(8.0, 16.0, 32.0),
        near=edges_near(3, CHAIN),
        figures=EdgeFigures(3, CHAIN),
        prices=Prices(query=2.0, match=3.0, lookup=hash_table(1.0, 8.0)),
        accounting=accounting,
    )


def test_equation_8() -> None:
    # f: a 1 + 8/16 = 1.5, b 2, c 3.
    # Last step b -> c: 2*3 + 0.25 * (3*8 + 0) = 12.
    # First a -> b: 2*2 + 0.5 * (3*4 + 12) = 16.
    assert order_cost(chain(Accounting.PAPER), 0, (1, 2)) == 16.0
    # From b: c then a: 2*1.5 + 1 * 3 = 6; 2*3 + 0.25 * (3*8 + 6) = 13.5.
    assert order_cost(chain(Accounting.PAPER), 1, (2, 0)) == 13.5


def test_every_match_is_a_probe() -> None:
    # b -> c as before: 12. a -> b: 2*2 + 0.5*4 * (3 + 12) = 34.
    assert order_cost(chain(Accounting.TUPLE), 0, (1, 2)) == 34.0
    # b -> a: 6, then 2*3 + 0.25*8 * (3 + 6) = 24.
    assert order_cost(chain(Accounting.TUPLE), 1, (2, 0)) == 24.0


def test_lookups() -> None:
    assert hash_table(3.0, 4.0)(16.0) == 5.0
    assert sorted_array(math.e) == pytest.approx(1)
    assert sorted_array(0.0) == 0.0
    assert constant(1e9) == 1.0


def test_the_cheapest_side_is_taken() -> None:
    matches = {pair: Match(1.0, 1.0) for pair in [(0, 1), (1, 0), (0, 2), (2, 0), (2, 1)]}
    matches[1, 2] = Match(0.0, 1.0)
    ones = (1.0,) * 3
    operator = Operator(
        ("a", "b", "c"), ones, ones, ones, edges_near(3, matches), EdgeFigures(3, matches)
    )
    # a -> b finds one; b -> c finds none, where a -> c finds one: (1 + 1) + 1.
    assert order_cost(operator, 0, (1, 2)) == 3.0


def test_figures_by_sizes() -> None:
    sizes = {0b001: 10.0, 0b011: 20.0, 0b111: 0.0}
    figures = SizeFigures(3, lambda start, mask: sizes[mask])
    match = figures.one(0, 0b001, 0, 1)
    assert match.gamma == pytest.approx(1 - math.exp(-2))
    assert match.gamma * match.mu == pytest.approx(2)
    assert figures.one(0, 0b011, 1, 2) == Match(0.0, 1.0)


def test_an_order_that_does_not_join_is_refused() -> None:
    with pytest.raises(PlannerError, match="c joins nothing visited before it") as caught:
        order_cost(chain(Accounting.PAPER), 0, (2, 1))
    assert caught.value.code == "no-order"


def test_an_unconnected_operator_is_refused() -> None:
    matches = {(0, 1): Match(1, 1), (1, 0): Match(1, 1)}
    ones = (1.0,) * 3
    with pytest.raises(PlannerError, match="no steps lead from a to c") as caught:
        Operator(("a", "b", "c"), ones, ones, ones, edges_near(3, matches), EdgeFigures(3, matches))
    assert caught.value.code == "unconnected-join"


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_a_share_is_a_share(value: float) -> None:
    with pytest.raises(StatisticsError, match="gamma"):
        Match(value, 1.0)


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_figures_are_finite(value: float) -> None:
    with pytest.raises(StatisticsError, match="mu"):
        Match(0.5, value)
    with pytest.raises(StatisticsError, match=r"weights: .* of b"):
        chain(Accounting.PAPER, weights=(1.0, value, 1.0))
    with pytest.raises(PlannerError, match="alpha_q"):
        Prices(query=value)
    with pytest.raises(PlannerError, match="alpha_m"):
        Prices(match=value)


@pytest.mark.parametrize("edge", [(0, 0), (0, 2), (-1, 0)])
def test_an_edge_joins_two_streams(edge: tuple[int, int]) -> None:
    with pytest.raises(PlannerError, match="is not an edge of 2 streams"):
        edges_near(2, {edge: Match(1, 1)})


def test_a_hash_table_has_slots() -> None:
    with pytest.raises(StatisticsError, match="m is 0"):
        hash_table(1.0, 0)

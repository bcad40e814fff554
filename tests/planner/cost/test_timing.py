"""Compare the cost model's time bounds with PMJoin's recursion, closed forms and counting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.queries.joins import Bounds, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds, shares
from anabranch_planner.normal.time_bounds import close, from_windows
from tests.support.cases.queries import chain, given_statistics
from tests.support.oracles.rate_model import Flow, counted, joined

#: Microseconds per unit of time.
UNIT = 1_000_000_000
NAMES = ("R", "S", "T", "U", "V")

windows = st.integers(0, 2 * UNIT)
sizes = st.integers(2, 5)


def over(query: JoinQuery, labels: str) -> Mir:
    return sub_join(query, frozenset(Label(x) for x in labels))


def windowed(query: JoinQuery, widths: Mapping[str, int | None]) -> JoinQuery:
    names = [str(label) for label in query.labels]
    return replace(query, bounds=close(from_windows(names, widths), names))


def model(*queries: JoinQuery, **known: float) -> CostModel:
    statistics = given_statistics(
        default=known.get("rate", 100.0), selectivity_default=known.get("f", 0.01), history=UNIT
    )
    return CostModel(statistics, bounds=LoosestBounds(queries))


def parts(widths: Sequence[int | None]) -> tuple[float, ...]:
    """Return the shares of labels with these windows."""
    labels = [Label(x) for x in NAMES[: len(widths)]]
    bounds = {
        (i, j): w
        for i, w in zip(labels, widths, strict=True)
        for j in labels
        if i != j and w is not None
    }
    return shares(labels, bounds, dict.fromkeys(labels, float(UNIT)))


@given(sizes)
def test_full_history_is_eq_1(size: int) -> None:
    assert parts([None] * size) == pytest.approx([1 / size] * size)


@given(sizes, windows)
def test_equal_windows_have_a_closed_form(size: int, width: int) -> None:
    t = min(width / UNIT, 1.0)
    expected = t ** (size - 1) - (size - 1) / size * t**size
    assert parts([width] * size) == pytest.approx([expected] * size, abs=1e-12)


@given(st.lists(windows, min_size=2, max_size=5), st.data())
def test_a_longer_window_never_gives_less(widths: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.integers(0, len(widths) - 1))
    longer: list[int | None] = list(widths)
    longer[chosen] = data.draw(st.one_of(st.none(), st.integers(widths[chosen], 3 * UNIT)))
    for before, after in zip(parts(widths), parts(longer), strict=True):
        assert after >= before - 1e-12
    assert sum(parts(longer)) <= 1 + 1e-12


@given(st.lists(windows, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_the_members_does_not_matter(widths: list[int], rng: object) -> None:
    base = parts(widths)
    for order in list(permutations(range(len(widths))))[:24]:
        mixed = parts([widths[i] for i in order])
        assert mixed == pytest.approx([base[i] for i in order], rel=1e-12)


@given(
    st.lists(st.floats(1, 50), min_size=4, max_size=4),
    st.lists(st.integers(1, 100), min_size=4, max_size=4),
    st.permutations(range(4)),
)
def test_short_windows_are_pmjoins_recursion_in_any_order(
    rates: list[float], widths: list[int], order: list[int]
) -> None:
    # With windows of about 1e-8 of the unit of time, the start of history is negligible.
    flows = [Flow(r, r * w / UNIT) for r, w in zip(rates, widths, strict=True)]
    total = flows[order[0]]
    for i in order[1:]:
        total = joined(total, flows[i], 1.0)
    found = math.prod(rates) * sum(parts(widths))
    assert found == pytest.approx(total.rate, rel=1e-5)


def test_pmjoins_example_2() -> None:
    """S2 with S3: rate 15, window 75; S0 with the pairs: rate 9, window 30."""
    second = 10  # windows of ten seconds in a history of 1e8 seconds
    query = chain("S2.a=S3.a", "S0.b=S2.b")
    query = windowed(query, dict.fromkeys(["S0", "S2", "S3"], 10 * second))
    seconds = UNIT / second
    rates = {"S0": 10.0, "S2": 25.0, "S3": 30.0}
    statistics = given_statistics(
        cardinalities={name: rate * seconds for name, rate in rates.items()},
        selectivities={"S2.a=S3.a": 0.001, "S0.b=S2.b": 0.004},
        history=UNIT,
    )
    known = CostModel(statistics, bounds=LoosestBounds([query]))
    pair = sub_join(query, frozenset({Label("S2"), Label("S3")}))
    assert known.cardinality(pair) / seconds == pytest.approx(15, rel=1e-6)
    whole = sub_join(query, frozenset(query.labels))
    assert known.cardinality(whole) / seconds == pytest.approx(9, rel=1e-6)
    inner = joined(Flow(25, 250), Flow(30, 300), 0.001)
    assert joined(inner, Flow(10, 100), 0.004) == Flow(9.0, 30.0)


GRID = 24


@given(st.lists(st.one_of(st.none(), st.integers(1, UNIT)), min_size=2, max_size=3))
def test_windows_agree_with_counting(widths: list[int | None]) -> None:
    size = len(widths)
    times = [[(k + (i + 0.5) / size) / GRID for k in range(GRID)] for i in range(size)]
    bounds = {
        (i, j): w / UNIT
        for i, w in enumerate(widths)
        for j in range(size)
        if i != j and w is not None
    }
    found = [c / GRID**size for c in counted(times, bounds)]
    assert found == pytest.approx(parts(widths), abs=2 / GRID)
    assert sum(found) == pytest.approx(sum(parts(widths)), abs=3 / GRID)


@given(st.integers(-UNIT, UNIT), st.integers(0, UNIT))
def test_a_band_agrees_with_counting(low: int, width: int) -> None:
    """The bounds are ``S.ts BETWEEN R.ts + low AND R.ts + low + width``."""
    labels = (Label("R"), Label("S"))
    pairs = {labels: low + width, labels[::-1]: -low}
    found = shares(labels, pairs, dict.fromkeys(labels, float(UNIT)))
    times = [[(k + (i + 0.5) / 2) / 200 for k in range(200)] for i in range(2)]
    last = counted(times, {(0, 1): (low + width) / UNIT, (1, 0): -low / UNIT})
    assert [c / 200**2 for c in last] == pytest.approx(found, abs=0.01)


def test_shares_are_unequal_where_windows_are() -> None:
    query = windowed(chain("R.a=S.a", "S.b=T.b"), {"R": 1000, "S": 2000, "T": 4000})
    known = model(query)
    whole = over(query, "RST")
    costs = [known.probe(whole, Label(x)) for x in "RST"]
    assert costs[0] / costs[1] == pytest.approx(2, rel=1e-4)
    assert costs[1] / costs[2] == pytest.approx(2, rel=1e-4)
    assert sum(costs) == pytest.approx(known.cardinality(whole))
    assert known.probe(whole) == pytest.approx(known.cardinality(whole) / 3)
    assert known.insert(whole) == known.cardinality(whole)
    assert known.probe(over(query, "R"), Label("R")) == 100


def test_full_history_is_what_it_was() -> None:
    query = chain("R.a=S.a", "S.b=T.b")
    free, bound = CostModel(given_statistics(default=100.0, selectivity_default=0.03)), model(query)
    assert free.cardinality(over(query, "RS")) == 100 * 100 * 0.03
    assert bound.cardinality(over(query, "RS")) == 100 * 100 * 0.01
    assert free.probe(over(query, "RS"), Label("R")) == free.probe(over(query, "RS"))


def test_a_shared_sub_join_has_the_loosest_bounds() -> None:
    tight = windowed(chain("R.a=S.a", "S.b=T.b", id="tight"), dict.fromkeys("RST", 1000))
    loose = windowed(chain("R.a=S.a", "S.c=U.c", id="loose"), dict.fromkeys("RSU", 5000))
    other = chain("R.z=S.z", id="other")
    full = chain("R.a=S.a", id="full")
    pair, ends = over(tight, "RS"), over(tight, "ST")
    alone = model(tight).cardinality(pair)
    assert model(loose).cardinality(pair) == pytest.approx(5 * alone, rel=1e-4)
    assert model(tight, loose, other).cardinality(pair) == model(loose).cardinality(pair)
    assert model(tight, loose).cardinality(ends) == model(tight).cardinality(ends)
    assert model(tight, full).cardinality(pair) == model(full).cardinality(pair) == 100


def test_a_window_as_long_as_history_is_full_history() -> None:
    query = windowed(chain("R.a=S.a"), dict.fromkeys("RS", UNIT))
    assert model(query).cardinality(over(query, "RS")) == pytest.approx(100)


def test_bounds_over_an_unknown_span_count_as_none_and_are_named() -> None:
    query = windowed(chain("R.a=S.a"), dict.fromkeys("RS", 5))
    statistics = given_statistics(default=100.0, selectivity_default=0.01)
    known = CostModel(statistics, bounds=LoosestBounds([query]))
    assert known.cardinality(over(query, "RS")) == pytest.approx(100)
    assert known.assumed == (
        "windows on R reach over all of its history",
        "windows on S reach over all of its history",
    )


def test_one_sided_bounds_leave_the_later_stream_alone_to_complete_results() -> None:
    matrix: Bounds = ((0, UNIT // 2), (0, 0))
    query = replace(chain("R.a=S.a"), bounds=matrix)
    whole = over(query, "RS")
    assert model(query).probe(whole, Label("R")) == 0
    assert model(query).probe(whole, Label("S")) == pytest.approx(100 * 0.375)

"""Tests of samples of unmeasured joins, inferred from larger joins with the same keys."""

from __future__ import annotations

import pytest

from anabranch_contract.protocol.measurements import FrequentValues, JoinSample
from anabranch_contract.queries.joins import Label, RelationId, Stream, StreamName
from anabranch_contract.queries.mirs import sub_join
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.figures import Figures
from anabranch_planner.cost.inferred import Inference
from anabranch_planner.cost.selectivity import Selectivities
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import parse_sql

INT = parse_type("int")
STREAMS = {n: Stream(StreamName(n), tuple((c, INT) for c in "abc")) for n in "RST"}
CHAIN = parse_sql("q", "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b", STREAMS)
TRIANGLE = parse_sql(
    "q", "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b AND R.c = T.c", STREAMS
)
STAR = parse_sql("q", "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON R.a = T.a", STREAMS)
R, S, T = Label("R"), Label("S"), Label("T")


def test_a_step_stands_for_the_labels_that_its_keys_are_of() -> None:
    whole = sub_join(CHAIN, frozenset({R, S, T})).id
    sample = JoinSample(whole, (R, S), (T,), 1e4, 5e6, 5e4)

    found = Inference([CHAIN]).extend([sample])

    pair = sub_join(CHAIN, frozenset({S, T}))
    assert found == (sample, JoinSample(pair.id, (S,), (T,), 1e4, 5e6, 5e4))
    figures = Figures(Statistics(every_distinct={}))
    assert Selectivities(figures, found).of(pair) == pytest.approx(0.01, rel=0.2)


def test_what_was_seen_is_not_inferred() -> None:
    whole = sub_join(CHAIN, frozenset({R, S, T})).id
    pair = sub_join(CHAIN, frozenset({S, T})).id
    samples = (
        JoinSample(whole, (R, S), (T,), 100.0, 5000.0, 50.0),
        JoinSample(pair, (T,), (S,), 9.0, 90.0, 1.0),
    )

    assert set(Inference([CHAIN]).extend(samples)) == set(samples)


def test_keys_of_all_labels_stand_for_nothing_smaller() -> None:
    whole = sub_join(TRIANGLE, frozenset({R, S, T})).id
    sample = JoinSample(whole, (R, S), (T,), 100.0, 5000.0, 50.0)

    assert Inference([TRIANGLE]).extend([sample]) == (sample,)


def test_samples_of_other_queries_are_left_alone() -> None:
    sample = JoinSample(sub_join(TRIANGLE, frozenset({R, S, T})).id, (R, S), (T,), 9.0, 9.0, 9.0)

    assert Inference([CHAIN]).extend([sample]) == (sample,)


def test_several_steps_are_added_up() -> None:
    whole = sub_join(CHAIN, frozenset({R, S, T})).id
    samples = (
        JoinSample(whole, (R, S), (T,), 100.0, 5000.0, 50.0),
        JoinSample(whole, (T,), (R, S), 10.0, 500.0, 5.0),
    )

    found = Inference([CHAIN]).extend(samples)

    pair = sub_join(CHAIN, frozenset({S, T})).id
    assert {(s.head, s.target): (s.probes, s.hits) for s in found if s.joined == pair} == {
        ((S,), (T,)): (100.0, 50.0),
        ((T,), (S,)): (10.0, 5.0),
    }


@pytest.mark.parametrize("rest", [100, 10_000])
def test_nothing_is_inferred_where_frequent_values_make_most_matches(rest: int) -> None:
    """A tenth of R and of S has value 1, which T lacks, so R*S*T has no such tuple. The other
    values are ``rest`` equally frequent ones. With 100 of them a pair matches with nearly the
    measured fraction; with 10,000, due to frequent values, a hundred times as often.
    """
    listed = FrequentValues((1,), ("1",), (0.1,), (0.1,), 0.001)
    unlisted = FrequentValues((), (), (), (), 0.001)
    known = Statistics(
        every_distinct=dict.fromkeys(map(RelationId, "RST"), float(rest)),
        cardinalities=dict.fromkeys(map(RelationId, "RST"), 1e6),
        values={(RelationId(name), "a"): unlisted if name == "T" else listed for name in "RST"},
    )
    figures = Figures(known)
    true = 0.1 * 0.1 + 0.9 * 0.9 / rest
    larger = JoinSample(
        sub_join(STAR, frozenset({R, S, T})).id, (R, T), (S,), 1e4, 1e8, 0.9e8 / rest
    )
    pair = sub_join(STAR, frozenset({R, S}))

    plain = Inference([STAR]).extend([larger])
    found = Inference([STAR]).extend([larger], figures.values)

    assert [one.joined for one in plain if one is not larger] == [pair.id]
    estimate = Selectivities(figures, [one for one in found if one is not larger]).of(pair)
    assert estimate == pytest.approx(true, rel=0.1)
    if rest == 10_000:
        assert found == (larger,)
        wrong = Selectivities(figures, [one for one in plain if one is not larger]).of(pair)
        assert wrong < true / 10


def test_skew_of_another_key_prevents_no_inference() -> None:
    """T joins S by another column than R does."""
    listed = FrequentValues((1,), ("1",), (0.9,), (0.9,), 0.001)
    values = {(RelationId(name), column): listed for name in "RST" for column in "ab"}
    sample = JoinSample(sub_join(CHAIN, frozenset({R, S, T})).id, (R, S), (T,), 1e4, 5e6, 5e4)

    known = Figures(Statistics(values=values)).values

    assert Inference([CHAIN]).extend([sample], known) == Inference([CHAIN]).extend([sample])

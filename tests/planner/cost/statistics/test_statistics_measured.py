"""Tests of statistics derived from the runtime's measurements."""

from __future__ import annotations

from anabranch_contract.protocol.measurements import FrequentValues, JoinSample, Snapshot
from anabranch_contract.queries.joins import RelationId
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.statistics.statistics import Statistics, measured

R, S, FILTERED = RelationId("R"), RelationId("S"), RelationId("R[x]")


def test_a_stream_is_counted_without_rejected_tuples_and_a_filtered_relation_by_itself() -> None:
    found = measured(
        Snapshot(
            3, 4, 16,
            arrivals={"R[x]": 7, "R": 100, "T[y]": 0},
            streams={"R": {"input": 9, "late": 1, "invalid": 0}},
            distincts={"R": {"a": 3.0, "a,b": 5.0}, "R[x]": {"a": 2.0}},
        )
    )  # fmt: skip
    assert (found.cardinality(R), found.cardinality(FILTERED)) == (8.0, 7.0)
    assert found.cardinality(RelationId("T[y]")) == 1.0
    assert found.cardinality(S) is None
    assert found.distinct(R, ("a", "b")) == 5.0
    assert found.distinct(R, ("b",)) is None
    assert found.distinct(FILTERED, ("a",)) == 2.0
    assert found.distinct(S, ("a",)) is None


def test_a_filtered_relation_has_the_span_of_its_stream() -> None:
    found = measured(Snapshot(0, 1, 1, spans={"R": 5_000_000, "S": 0}))
    assert found.span(R) == found.span(FILTERED) == 5e6
    assert found.span(S) is None
    assert found.span(RelationId("T")) is None


def test_values_and_samples_are_those_measured_and_nothing_is_foreseen() -> None:
    values = FrequentValues((1,), ("a",), (0.5,), (0.4,), 0.01)
    sample = JoinSample(MirId("R,S"), (), (), 1.0, 1.0, 1.0)
    found = measured(Snapshot(0, 1, 1, values={"R": {"a": values}}, steps=(sample,)))
    assert found.frequent(R, "a") == values
    assert found.frequent(R, "b") is found.frequent(S, "a") is None
    assert found.samples == (sample,)
    assert (found.ahead, found.constants, found.exchange) == (None, None, None)
    assert measured(Snapshot(0, 0, 0)) == Statistics()

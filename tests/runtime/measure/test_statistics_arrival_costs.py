"""Tests of the cost per arriving tuple, from the seconds of all probe trees of its stream."""

from __future__ import annotations

import pytest

from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_runtime.measure.statistics import GIVEN_OUT, arrival_costs
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.measures import StreamMeter
from tests.support.cases.states import RS, ST, measuring, rules


def test_seconds_of_all_trees_of_a_stream_are_divided_by_its_tuples() -> None:
    ruleset = rules(0, {"q": RS, "p": ST})
    stream_of = {r.id: r.stream for r in ruleset.relations}
    member = {label: stream_of[rel] for q in ruleset.queries for _, label, rel in q.members}
    seconds = {"R": 3.0, "S": 0.5, "T": 0.0}
    edges: dict[str, EdgeStatistics] = {
        rule.out: EdgeStatistics(probes=9, seconds=seconds[member[rule.start]])
        for rule in ruleset.probe_rules
    }
    trees = [str(member[rule.start]) for rule in ruleset.probe_rules]
    meters = {name: StreamMeter(input=1000) for name in ("R", "S", "gone")}
    state = measuring(State(), edges={**edges, "of old": EdgeStatistics(seconds=7)}, meters=meters)
    assert arrival_costs(state, ruleset) == {
        # A stream from which no rule starts any more is only read; T has had no tuple yet.
        "gone": 0.0,
        **{n: pytest.approx(trees.count(n) * seconds[n] / 1000) for n in ("R", "S")},
    }


def test_nothing_is_known_before_anything_was_probed() -> None:
    ruleset = rules(0, {"q": RS})
    assert arrival_costs(State(), ruleset) == {}
    read = measuring(State(), meters={"R": StreamMeter(input=1000)})
    assert arrival_costs(read, ruleset) == {}


def test_results_count_for_the_stream_whose_tuple_came_last() -> None:
    ruleset = rules(0, {"q": RS})
    stream_of = {r.id: r.stream for r in ruleset.relations}
    (rule,) = (r for r in ruleset.probe_rules if stream_of[ruleset.relations[0].id] in str(r.start))
    edges: dict[str, EdgeStatistics] = {rule.out: EdgeStatistics(seconds=1.0, made=10**7)}
    name = stream_of[ruleset.relations[0].id]
    state = measuring(State(), edges=edges, meters={name: StreamMeter(input=100)})
    expected = (1.0 + GIVEN_OUT * 10**7) / 100
    assert arrival_costs(state, ruleset) == {name: pytest.approx(expected)}

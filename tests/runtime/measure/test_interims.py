"""Tests that periods of measurements add up to the counters, whatever their lengths."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.steps import CountedStep, SubJoinStep
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.interims import NAMED, Interim, StepMeasures
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId
from anabranch_runtime.measure.interims import begin, close, leave_ruleset
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.measured import Measurements
from tests.support.cases.states import measuring

R, S, T = Label("R"), Label("S"), Label("T")
RS = SubJoinStep(MirId("R,S"), (R,), (S,))
RST = SubJoinStep(MirId("R,S,T"), (R, S), (T,))
#: Epoch -> edge -> step: a label has a meaning in its epoch only.
RULES = tuple(
    {edge: CountedStep(step) for edge, step in rules.items()}
    for rules in ({"a": RS, "b": RST}, {"b": RS, "a": RST}, {"c": RS})
)


def history(rng: Random, batches: int) -> list[State]:
    """Return the states after each batch, the first one before any."""
    state = State(epoch=0)
    found = [state]
    for batch in range(batches):
        if batch and not rng.randrange(3):
            state = measuring(replace(state, epoch=state.epoch + 1), edges={})
        edges = dict(state.measured.edges)
        for edge in RULES[state.epoch % 3]:
            probes = rng.randrange(50)
            fresh = EdgeStatistics(probes, 2 * probes, 0.25, 7 * probes, probes, probes // 2)
            edges[edge] = edges.get(edge, EdgeStatistics()) + fresh
        arrivals = {"R": state.measured.arrivals.get("R", 0) + rng.randrange(9)}
        state = measuring(replace(state, next_batch=batch + 1), edges=edges, arrivals=arrivals)
        found.append(state)
    return found


def measured(states: list[State], ends: set[int]) -> list[Interim]:
    """Return the periods that end after the batches ``ends`` and after the last batch."""
    last, found = states[0], []
    period = begin(last, 0.0)
    for number, state in enumerate(states[1:]):
        if state.epoch != last.epoch:
            period = leave_ruleset(period, last, RULES[last.epoch % 3])
        if number in ends or number == len(states) - 2:
            rules = RULES[state.epoch % 3]
            found.append(close(period, state, rules, number + 1.0, 100.0 + number))
            period = begin(state, number + 1.0)
        last = state
    return found


@given(st.integers(0, 10**6), st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_periods_add_up_to_the_whole(seed: int, batches: int, ends: set[int]) -> None:
    states = history(Random(seed), batches)
    periods = measured(states, ends)
    (whole,) = measured(states, set())

    assert sum(p.batches for p in periods) == whole.batches == batches
    assert sum(p.seconds for p in periods) == whole.seconds == batches
    assert sum(p.arrivals["R"] for p in periods) == whole.arrivals["R"]
    added: dict[SubJoinStep, EdgeStatistics] = {}
    for one in (s for p in periods for s in p.steps):
        added[one.step] = added.get(one.step, EdgeStatistics()) + one.counts
    assert added == {s.step: s.counts for s in whole.steps}


def test_counts_go_to_the_step_that_the_edge_was_then() -> None:
    counts = EdgeStatistics(5, 5, 0.0, 9, 5, 3), EdgeStatistics(2, 1, 0.0, 4, 1, 1)
    first, later = (
        State(epoch=n, next_batch=n + 1, measured=Measurements(edges={"a": one}))
        for n, one in enumerate(counts)
    )
    period = leave_ruleset(begin(State(epoch=0), 10.0), first, RULES[0])
    found = close(period, later, RULES[1], 13.0, 1_000.0)

    assert found.steps == (
        StepMeasures.of(RS, EdgeStatistics(5, 5, 0.0, 9, 5, 3)),
        StepMeasures.of(RST, EdgeStatistics(2, 1, 0.0, 4, 1, 1)),
    )
    assert (found.seconds, found.until, found.batches) == (3.0, 1_000.0, 2)
    assert Interim.loads(found.dumps()) == found


def test_the_queries_with_most_results_are_named() -> None:
    def state(results: dict[str, int]) -> State:
        return State(epoch=0, queries={n: Activation(0, {}, results=r) for n, r in results.items()})

    before = state({f"q{n:03}": n for n in range(NAMED + 9)} | {"gone": 7})
    after = state({f"q{n:03}": 2 * n for n in range(NAMED + 9)} | {"new": 1000})
    found = close(begin(before, 0.0), after, RULES[0], 1.0, 1.0).emitted
    assert len(found) == NAMED
    assert found["new"] == 1000
    assert found[f"q{NAMED + 8}"] == NAMED + 8
    assert "q009" not in found
    assert close(begin(after, 0.0), after, RULES[0], 1.0, 1.0).emitted == {}


def test_an_edge_without_a_rule_and_a_step_without_a_probe_are_left_out() -> None:
    counts = {"gone": EdgeStatistics(4), "a": EdgeStatistics(0)}
    state = State(epoch=0, measured=Measurements(edges=counts))
    assert close(begin(State(epoch=0), 0.0), state, RULES[0], 1.0, 1.0).steps == ()

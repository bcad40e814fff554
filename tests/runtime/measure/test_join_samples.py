"""Tests that all work of a ruleset is counted in series, drift test and join samples."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.ahead import askable
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.plans.steps import SubJoinStep, counted_steps
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_runtime.measure.drift import Edges, Watch, watch
from anabranch_runtime.measure.interims import begin, close
from anabranch_runtime.measure.join_samples import step_samples
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.measured import Measurements
from tests.support.cases.random_plans import random_plan
from tests.support.cases.random_problems import random_queries
from tests.support.cases.states import rules

BOTH = rules(0, {"rst": "SELECT R.a FROM R, S, T WHERE R.a = S.a AND S.b = T.b"})


def divided_rules(rng: Random) -> Ruleset:
    """Return the ruleset of a random plan with substreams."""
    queries = random_queries(rng.randrange(10**6), count=3, size=4, relations=5)
    plan = random_plan(queries, rng, apart=True)
    return compile_ruleset(plan, queries, (), epoch=0, parallelism=2, sinks={})


@given(st.integers(0, 10**9))
def test_all_work_is_in_the_series_the_drift_test_and_the_samples(seed: int) -> None:
    """For random plans with several substreams, and look-ahead filters on some edges."""
    rng = Random(seed)
    ruleset = divided_rules(rng)
    known = askable(ruleset)
    ruleset = replace(
        ruleset,
        probe_rules=tuple(
            replace(r, ahead=known.get(r.out, ()) if rng.random() < 0.3 else ())
            for r in ruleset.probe_rules
        ),
    )
    counts = {
        str(rule.out): EdgeStatistics(
            probes := rng.randrange(30, 500), matches := rng.randrange(900), 0.1,
            pairs=10**6, hits=matches, found=min(probes, matches),
        )
        for rule in ruleset.probe_rules
    }  # fmt: skip
    work = sum(c.probes + c.matches for c in counts.values())
    counted, state = counted_steps(ruleset), State(epoch=0, measured=Measurements(edges=counts))

    series = close(begin(State(epoch=0), 0.0), state, counted, 1.0, 1.0).steps
    assert sum(s.counts.probes + s.counts.matches for s in series) == work
    edges = Edges.of(counted)
    pooled = watch(Watch(), edges, counts, {}, {})
    assert set(edges.places) == set(counts)
    # Each step's matches and found tuples have made a value.
    assert pooled.sums.seen[: 2 * len(edges.steps)].all()
    samples = step_samples(counted, counts)
    assert sum(s.probes + s.hits for s in samples) == work


@given(st.integers(0, 10**9))
def test_substreams_of_one_count_exclude_each_other_or_are_all(seed: int) -> None:
    """So the counts of a part are of these substreams' tuples and of no others."""
    ruleset = divided_rules(Random(seed))
    takers, found = ruleset.takers, counted_steps(ruleset)
    by_step: dict[SubJoinStep, set[tuple[int, ...]]] = defaultdict(set)
    for rule in ruleset.paths:
        step = found[rule.out].step
        if step.part.substreams:
            assert step.part.start == rule.start
            by_step[step].add(takers[rule.out])
    assert all(numbers == {step.part.substreams} for step, numbers in by_step.items())


def test_pairs_of_dropped_tuples_are_added_where_they_would_have_found_nothing() -> None:
    """Of 100 tuples 75 are dropped by look-ahead, so the remaining 25 have the hits of all 100."""
    known = askable(BOTH)
    rule = next(r for r in BOTH.probe_rules if known.get(r.out))
    probes = tuple(replace(r, ahead=known[r.out] if r is rule else ()) for r in BOTH.probe_rules)
    found = counted_steps(replace(BOTH, probe_rules=probes))
    (later,) = (edge for edge, one in found.items() if one.asked is not None)
    edges = {
        str(rule.out): EdgeStatistics(25, 25, pairs=2500, hits=25, asked=100, dropped=75),
        later: EdgeStatistics(25, 50, pairs=2500, hits=50),
    }
    by_step = {s.step: (s.pairs, s.hits) for s in step_samples(found, edges)}
    assert by_step == {found[rule.out].step: (2500, 25), found[later].step: (10_000, 50)}

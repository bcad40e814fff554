"""Tests of selectivities of sub-joins from measured pairs, and their use in the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest

from anabranch_contract.errors import StatisticsError
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.plans.steps import counted_steps
from anabranch_contract.protocol.measurements import EdgeStatistics, JoinSample
from anabranch_contract.queries.joins import JoinQuery, Label, Stream, StreamName
from anabranch_contract.queries.mirs import Mir, is_connected, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.selectivity import MIN_PROBES, PRIOR_HITS
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_runtime.measure.join_samples import remember, step_samples
from tests.support.cases.queries import INT, chain, given_statistics
from tests.support.cases.random_plans import random_plan
from tests.support.cases.random_problems import random_queries

QUERY = chain("R.a=S.a", "S.b=T.b", "T.c=U.c")


def over(labels: str, query: JoinQuery = QUERY) -> Mir:
    return sub_join(query, frozenset(Label(x) for x in labels))


def seen(
    head: str, target: str, f: float, *, probes: float = 1e6, pairs: float = 1e9
) -> JoinSample:
    cut = tuple(tuple(Label(x) for x in part) for part in (head, target))
    return JoinSample(over(head + target).id, cut[0], cut[1], probes, pairs, f * pairs)


def model(*samples: JoinSample) -> CostModel:
    """Return a cost model of relations of 100 tuples and predicates of selectivity 1/100."""
    return CostModel(given_statistics(default=100.0, selectivity_default=0.01, samples=samples))


def rules_of(queries: Sequence[JoinQuery], rng: Random) -> Ruleset:
    columns = {
        (m.label.partition("#")[0], m.attribute)
        for q in queries
        for c in q.classes
        for m in c.members
    }
    streams = [
        Stream(StreamName(s), tuple((a, INT) for t, a in sorted(columns) if t == s))
        for s in sorted({s for s, _ in columns})
    ]
    plan = random_plan(queries, rng, mirs=0.6)
    return compile_ruleset(plan, queries, streams, epoch=0, parallelism=1, sinks={})


@pytest.mark.parametrize("seed", range(12))
def test_every_edge_belongs_to_the_sub_join_that_it_reaches(seed: int) -> None:
    queries = [
        *random_queries(seed, count=4, size=4, relations=5),
        chain("R.a=S.a", "R.b=S.b", "S.a=S#1.a", "S#1.c=T.c", id="self"),
        chain("R.a=S.a", "S.a=T.a", "T.a=U.a", "R.d=U.d", id="cycle"),
    ]
    ruleset = rules_of(queries, Random(seed))
    edges = {str(p.out): EdgeStatistics(1, 0, 0.0, 10, 3) for p in ruleset.probe_rules}
    samples = step_samples(counted_steps(ruleset), edges)
    assert sum(s.probes for s in samples) == len(edges)
    assert sum(s.hits for s in samples) == 3 * len(edges)
    known = {
        sub_join(q, frozenset(labels)).id: frozenset(labels)
        for q in queries
        for size in range(2, len(q.labels) + 1)
        for labels in combinations(q.labels, size)
        if is_connected(q, frozenset(labels))
    }
    for sample in samples:
        assert known[sample.joined] == frozenset(sample.head + sample.target)
        assert not set(sample.head) & set(sample.target)


def test_edges_without_pairs_tell_nothing() -> None:
    ruleset = rules_of([QUERY], Random(1))
    assert step_samples(counted_steps(ruleset), {}) == ()
    edges = {str(p.out): EdgeStatistics(5, 2, 0.1) for p in ruleset.probe_rules}
    assert step_samples(counted_steps(ruleset), edges) == ()


def test_much_that_was_seen_replaces_the_estimate() -> None:
    assert model().cardinality(over("RS")) == pytest.approx(100)
    assert model(seen("R", "S", 0.1)).cardinality(over("RS")) == pytest.approx(1000, rel=1e-3)
    assert model(seen("R", "S", 0.001)).cardinality(over("RS")) == pytest.approx(10, rel=1e-2)


def test_little_that_was_seen_leaves_it() -> None:
    few = seen("R", "S", 0.1, probes=MIN_PROBES - 1)
    assert model(few).cardinality(over("RS")) == 100
    some = seen("R", "S", 0.1, probes=MIN_PROBES, pairs=100)
    expected = 1e4 * (10 + PRIOR_HITS) / (100 + PRIOR_HITS / 0.01)
    assert model(some).cardinality(over("RS")) == pytest.approx(expected)
    none = seen("R", "S", 0.0, probes=1000, pairs=1e5)
    assert 0 < model(none).cardinality(over("RS")) < 100


def test_a_probe_that_matches_a_lot_is_one_observation() -> None:
    wide = seen("R", "S", 0.5, probes=100, pairs=1e6)
    scale = 100 / 5e5
    expected = 1e4 * (100 + PRIOR_HITS) / (1e6 * scale + PRIOR_HITS / 0.01)
    assert model(wide).cardinality(over("RS")) == pytest.approx(expected)


def test_a_longer_step_builds_on_what_was_seen_of_its_head() -> None:
    both = model(seen("R", "S", 0.1), seen("RS", "T", 0.1))
    assert both.cardinality(over("RST")) == pytest.approx(10_000, rel=1e-2)
    head_only = model(seen("R", "S", 0.1))
    assert head_only.cardinality(over("RST")) == pytest.approx(1000, rel=1e-2)


def test_larger_sub_joins_inherit_the_largest_that_do_not_overlap() -> None:
    correlated = seen("RS", "T", 0.1)
    assert model(correlated).cardinality(over("RS")) == 100
    assert model(correlated).cardinality(over("RST")) == pytest.approx(1000, rel=1e-2)
    assert model(correlated).cardinality(over("RSTU")) == pytest.approx(1000, rel=1e-2)
    # Of R-S-T and R-S the larger sample counts; T-U shares only T with it.
    more = model(correlated, seen("R", "S", 0.05), seen("T", "U", 0.02))
    assert more.cardinality(over("RSTU")) == pytest.approx(
        more.cardinality(over("RST")) * 2, rel=1e-2
    )


def test_steps_to_one_sub_join_are_averaged_by_their_probes() -> None:
    known = model(seen("RS", "T", 0.1, probes=3e6), seen("R", "ST", 0.2, probes=1e6))
    assert known.cardinality(over("RST")) == pytest.approx(1250, rel=1e-2)


def test_samples_of_other_predicates_are_not_used() -> None:
    other = sub_join(chain("R.z=S.z"), frozenset({Label("R"), Label("S")}))
    foreign = JoinSample(other.id, (Label("R"),), (Label("S"),), 1e6, 1e9, 1e8)
    assert model(foreign).cardinality(over("RS")) == 100
    assert model(foreign).cardinality(over("RST")) == 100


def test_the_order_of_the_samples_does_not_matter() -> None:
    samples = [seen("R", "S", 0.3), seen("RS", "T", 0.1), seen("R", "ST", 0.2), seen("T", "U", 0.5)]
    whole = over("RSTU")
    assert model(*samples).cardinality(whole) == model(*samples[::-1]).cardinality(whole)


def test_a_sample_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(StatisticsError, match="number of pairs seen on the way to"):
        model(seen("R", "S", 0.1, pairs=-1.0))


def test_what_is_seen_again_counts_double_what_is_not_fades() -> None:
    old = (seen("R", "S", 0.5, probes=100, pairs=1000), seen("S", "T", 0.5, probes=1, pairs=10))
    new = seen("R", "S", 0.1, probes=10, pairs=100)
    (both,) = remember(old, [new])
    assert (both.probes, both.pairs, both.hits) == (60.0, 600.0, 260.0)
    other = seen("T", "U", 0.1)
    kept = {(s.head, s.probes) for s in remember(old[:1], [other])}
    assert kept == {(old[0].head, 90.0), (other.head, other.probes)}
    assert remember(old, ()) == old

"""Tests of the planner's memory between epochs: which changed figures cause a new plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.queries.joins import RelationId
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan import session
from anabranch_service.planning.process.follower import Follower
from benchmarks.planner.random_queries import natural


def test_a_plan_stays_until_a_figure_of_its_queries_moves() -> None:
    queries, known = natural(1, relations=8, count=6, size=3)
    read = {relation.id for query in queries for relation in query.relations}
    follower = Follower()
    follower.weight = 0.1
    assert not follower.stays(queries, known)
    plan = follower.make(queries, known, Options())
    assert follower.stays(queries, known)
    assert follower.taken == known
    # A relation that no query reads.
    other = replace(known, cardinalities={**known.cardinalities, RelationId("unread"): 7.0})
    assert follower.stays(queries, other)
    near = {r: size * 1.2 for r, size in known.cardinalities.items()}
    assert follower.stays(queries, replace(known, cardinalities=near))
    assert follower.make(queries, replace(known, cardinalities=near), Options()) == replace(
        plan, method="as before"
    )
    # Repeated small drifts are compared with the last plan's figures, not with each other.
    far = {r: size * 1.4 for r, size in known.cardinalities.items()}
    assert not follower.stays(queries, replace(known, cardinalities=far))
    one = {**near, min(read): 10 * near[min(read)]}
    assert not follower.stays(queries, replace(known, cardinalities=one))
    assert not follower.stays(queries[1:], known)


def test_a_plan_that_deletions_have_loosened_may_be_used_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "LOOSER", 1e-6)
    queries, known = natural(1, relations=20, count=60, size=4)
    follower = Follower()
    follower.make(queries, known, Options())
    assert follower.stays(queries, known)
    while follower.stays(queries, known):
        queries = queries[1:]
        follower.make(queries, known, Options())
    assert follower.is_of(queries)
    assert follower.make(queries, known, Options()).method == "branch"
    assert follower.stays(queries, known)

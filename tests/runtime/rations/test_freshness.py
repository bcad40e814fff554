"""Tests of queries with a limit of results' age: older results are not emitted, and tuples that
could only make such do not probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import redis as redis_client

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import Edge, Ruleset, arrival_edge
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import Label, Stream
from anabranch_planner.passes import parse_sql
from anabranch_planner.plans.compile import compile_revision, compile_ruleset
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.rations.freshness import oldest_starts, present
from anabranch_runtime.state.manifest import State, StreamState
from tests.support.cases.random_plans import random_plan
from tests.support.cases.states import RS, R, S, T, rules
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.driven import KEYS, driver, job, results

RST = "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"


@pytest.fixture
def url() -> Iterator[str]:
    fetch_ruleset.cache_clear()
    with redis_url() as server:
        yield server


@pytest.mark.parametrize("alias", ["R", "S"])
def test_results_with_a_member_that_is_too_old_are_not_emitted(
    alias: str, url: str, tmp_path: Path
) -> None:
    found = rules(0, {"q": RS})
    query = replace(found.queries[0], freshness=((_label(found, alias), 1),))
    connection = redis_client.Redis.from_url(url)
    text = rulesets.dumps(replace(found, queries=(query,)))
    assert rulesets.loads(text).queries == (query,)
    connection.set(KEYS.ruleset(0), text)
    connection.zadd(KEYS.published, {"0": 0})
    one, counts = driver(url, tmp_path, Mode.LIVE, every=99), []
    for batch in range(5):
        one.run(job(batch))
        counts.append(len(results(tmp_path)))
    # In batch b everything has joined all of batches 0 to b, whose event times are their numbers;
    # the present is b - 1. Of the results of b the member is of b - 2 or later: with it of b all b
    # + 1 partners, with it of b - 1 or b - 2 the partner of b.
    assert counts == [1, 4, 4 + 5, 9 + 6, 15 + 7]


def test_the_present_is_when_the_batch_was_planned_or_the_greatest_event_time() -> None:
    state = State(streams={"R": StreamState(R, 7), "S": StreamState(S, None)})
    assert present(state, 99) == 99
    assert present(state, None) == 7
    assert present(State(), None) is None


@pytest.mark.parametrize("seed", range(40))
def test_starts_are_too_old_where_they_are_for_every_goal_behind_an_edge(seed: int) -> None:
    rng = Random(seed)
    found = _random_rules(rng)
    now = 1000
    limits = {(q.id, label): now - most for q in found.queries for label, most in q.freshness}
    wanted: dict[Edge, int] = {}
    for rule in found.probe_rules:
        goals = [
            limits.get((o.query, rule.start))
            for o in found.output_rules
            if o.edge in _behind(found, rule.out)
        ]
        stored = any(s.edge in _behind(found, rule.out) for s in found.store_rules)
        known = [limit for limit in goals if limit is not None]
        if goals and not stored and len(known) == len(goals):
            wanted[rule.out] = min(known)
    assert oldest_starts(found, now) == wanted
    assert oldest_starts(found, None) == {}


def test_a_revision_keeps_what_queries_need() -> None:
    streams: dict[str, Stream] = {s.name: s for s in (R, S, T)}
    queries = [parse_sql("q", RST, streams)]
    plan = random_plan(queries, Random(1))
    running = compile_ruleset(
        plan, queries, (R, S, T), epoch=0, parallelism=1, sinks={}, freshness={"q": {"S": 5}}
    )
    assert [most for _, most in running.queries[0].freshness] == [5]
    assert compile_revision(plan, queries, running, 1).queries == running.queries


def _label(found: Ruleset, alias: str) -> Label:
    return next(label for name, label, _ in found.queries[0].members if name == alias)


def _random_rules(rng: Random) -> Ruleset:
    streams: dict[str, Stream] = {s.name: s for s in (R, S, T)}
    queries = [parse_sql(name, sql, streams) for name, sql in (("q", RST), ("two", RS))]
    plan = random_plan(queries, rng, mirs=0.5, apart=True)
    freshness = {
        name: {a: rng.randint(0, 9) for a in aliases if rng.random() < 0.7}
        for name, aliases in (("q", "RST"), ("two", "RS"))
    }
    return compile_ruleset(
        plan, queries, (R, S, T), epoch=0, parallelism=1, sinks={}, freshness=freshness
    )


def _behind(found: Ruleset, edge: Edge) -> set[Edge]:
    """Return ``edge`` and all edges that follow it."""
    reached = {edge}
    for rule in found.paths:
        if rule.edge in reached:
            reached.add(rule.out)
    assert not reached & {arrival_edge(r.id) for r in found.relations}
    return reached

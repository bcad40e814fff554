"""Tests of the queries that use each rule and store of a ruleset, and of the ruleset without some
queries.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.ruleset import arrival_edge
from anabranch_contract.protocol.activations import Failure
from anabranch_contract.queries.joins import QueryId
from anabranch_planner.passes import parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_runtime.epochs.failed_queries import failed, take_out, withdraw
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.ownership import ownership, without
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.manifest import State
from tests.support.cases.random_plans import random_plan
from tests.support.cases.states import RS, ST, R, S, T, rules, segment

RST = "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"
FILTERED = "SELECT R.a FROM R JOIN S ON R.a = S.a WHERE 10 / R.a > 1"


def test_a_rule_is_needed_by_whoever_is_below_it() -> None:
    known = rules(0, {"two": RS, "three": RST})
    users = ownership(known)
    for output in known.output_rules:
        assert output.query in users.of_edge(output.edge)
    for probe in known.probe_rules:
        below = users.of_edge(probe.out)
        assert below
        assert below <= users.of_store(probe.store)
        if not probe.edge.startswith("in:"):
            assert below <= users.of_edge(probe.edge)
    assert users.of_relation(known.relations[0].id) == {"two", "three"}
    assert users.of_edge(arrival_edge(known.relations[-1].id)) == {"three"}


def test_what_only_the_failed_query_needs_goes() -> None:
    known = rules(0, {"q": RS, "bad": FILTERED, "other": ST})
    left = without(known, frozenset({"bad"}))
    assert {q.id for q in left.queries} == {"q", "other"}
    assert {r.id for r in left.relations} == {"R", "S", "T"}
    assert not any("R[" in s.id for s in left.stores)
    left.validate()
    assert left == without(left, frozenset({"bad"}))
    assert without(known, frozenset({"stranger"})) is known
    nothing = without(known, frozenset({"q", "bad", "other"}))
    assert (nothing.stores, nothing.probe_rules, nothing.relations) == ((), (), ())
    assert nothing.streams == known.streams


@pytest.mark.parametrize("seed", range(20))
def test_any_plan_without_any_queries_is_whole(seed: int) -> None:
    rng = Random(seed)
    sql = {"a": RS, "b": ST, "c": RST, "d": FILTERED, "e": f"{RST} WHERE R.a + T.b > 3"}
    streams = {s.name: s for s in (R, S, T)}
    parsed = [parse_sql(name, text, {str(k): v for k, v in streams.items()}, None)
              for name, text in sql.items()]  # fmt: skip
    plan = random_plan(parsed, rng, mirs=0.9, apart=True)
    known = compile_ruleset(plan, parsed, [R, S, T], epoch=0, parallelism=2, sinks={})
    gone = frozenset(name for name in sql if rng.random() < 0.5)
    left = without(known, gone)
    left.validate()
    assert {q.id for q in left.queries} == set(sql) - gone
    assert {o.query for o in left.output_rules} == set(sql) - gone
    kept = {p.out for p in left.probe_rules}
    for probe in known.probe_rules:
        assert (probe.out in kept) == bool(ownership(known).of_edge(probe.out) - gone)
    filled = {r.store for r in left.store_rules}
    assert {s.id for s in left.stores} == filled
    indexed = {(s.id, i) for s in left.stores for i in s.indexes}
    whole = {(s.id, i) for s in known.stores for i in s.indexes}
    assert indexed <= whole
    assert {p.store for p in left.probe_rules} <= {s.id for s in left.stores}


def test_a_failed_query_ends_with_its_batch_and_its_stores_are_closed_before_it() -> None:
    known = rules(0, {"q": RS, "bad": FILTERED})
    state = enter_epoch(State(), known, 0)
    own = next(s.id for s in known.stores if "R[" in s.id)
    stored = (segment(own, (2, 3)), segment(own, (4, 4)))
    state = replace(
        state,
        next_batch=5,
        stores={**state.stores, own: replace(state.stores[own], segments=stored)},
    )
    why = Failure("divide-by-zero", "a divisor is zero", "10 / R.a", 4)

    found = take_out(state, known, {"bad": why})

    assert found.queries["bad"].expired_batch == 4
    assert found.queries["bad"].failure == why
    assert found.queries["q"] == state.queries["q"]
    assert found.stores[own].intervals == ((0, 3),)
    assert found.stores[own].open_since is None
    assert found.stores[own].segments == stored[:1]
    assert found.stores["S/1"].open_since == 0
    assert failed(found) == {"bad"}
    again = enter_epoch(found, without(known, failed(found)), 1)
    assert again.queries["bad"].expired_batch == 4


def test_all_joins_of_an_outer_join_fail_together() -> None:
    known = rules(0, {"q": RS, "bad": FILTERED, "bad+left": RS, "bad+2": RS})
    queries = tuple(replace(q, left_of=QueryId("bad")) if "+" in q.id else q for q in known.queries)
    known = replace(known, queries=queries)
    note = Failure("divide-by-zero", "a divisor is zero", "10 / R.a", 4, "guard it")

    def report_of(failures: dict[str, Failure]) -> TaskReport:
        return TaskReport(files={"bad": "1", "bad+left": "2"}, failures=failures)

    for broken in ("bad", "bad+left", "bad+2"):
        found = withdraw([report_of({broken: note})], known)
        assert found == dict.fromkeys(("bad", "bad+left", "bad+2"), note)
    report = report_of({"q": note})
    assert set(withdraw([report], known)) == {"q"}
    assert report.files == {"bad": "1", "bad+left": "2"}

"""Tests that a stream's ttl is a window for every alias of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from anabranch_contract.errors import QueryError, StreamError
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.queries.joins import Stream
from anabranch_planner.command.problem_file import parse_problem
from anabranch_planner.documents.fields import ProblemError
from anabranch_planner.documents.yaml import load_yaml
from anabranch_planner.passes import optimise, parse_sql, parse_structured
from anabranch_planner.plans.optimise import Options
from tests.support.cases.queries import given_statistics
from tests.support.cases.sample_streams import sample_streams
from tests.support.cases.states import RS, R, S, T, rules

STREAMS = sample_streams()
JOIN = "R JOIN S ON R.k = S.k"
MINUTE = 60_000_000


def living(**ttls: int) -> dict[str, Stream]:
    """Return the sample streams, some with a ttl."""
    return {name: replace(s, ttl=ttls.get(name)) for name, s in STREAMS.items()}


@pytest.mark.parametrize("window", [None, 3 * MINUTE, 9 * MINUTE, {"S": 3 * MINUTE}, {"T": 5}])
@pytest.mark.parametrize(
    "condition", ["", " AND S.ts <= R.ts", " AND T.ts - S.ts <= INTERVAL 1 DAY"]
)
def test_it_means_what_a_window_on_these_aliases_means(
    window: int | dict[str, int] | None, condition: str
) -> None:
    sql = f"SELECT R.k FROM {JOIN} JOIN T ON T.k = S.k{condition}"
    ttl = 7 * MINUTE
    own = window if isinstance(window, dict) else dict.fromkeys("RST", window)
    meant = {a: w for a, w in own.items() if w is not None}
    meant["S"] = min(ttl, meant.get("S", ttl))
    assert parse_sql("q", sql, living(S=ttl), window) == parse_sql("q", sql, STREAMS, meant)


def test_it_holds_for_every_alias_and_by_way_of_others() -> None:
    twice = parse_sql("q", "SELECT a.k FROM S a JOIN S b ON a.k = b.k", living(S=5))
    assert twice.bounds == ((0, 5), (5, 0))
    chained = f"SELECT R.k FROM {JOIN} JOIN T ON T.k = S.k WHERE S.ts <= R.ts"
    assert parse_sql("q", chained, living(S=5)).bounds == (
        (0, 0, 5),
        (5, 0, 5),
        (None, None, 0),
    )
    assert parse_sql("q", chained, living(R=5)).bounds[0] == (0, 0, 5)


def test_a_tighter_window_leaves_nothing_of_it() -> None:
    sql = f"SELECT R.k FROM {JOIN}"
    assert parse_sql("q", sql, living(R=8, S=9), 5) == parse_sql("q", sql, STREAMS, 5)


def test_one_relation_has_nothing_to_be_kept_for() -> None:
    assert parse_sql("q", "SELECT k FROM R", living(R=5)).bounds == ((0,),)


def test_it_needs_event_times_of_what_it_is_joined_with() -> None:
    with pytest.raises(QueryError) as caught:
        parse_sql("q", "SELECT R.k FROM R JOIN plain p ON p.k = R.k", living(R=5))
    assert caught.value.code == "no-event-time"
    assert "ttl of stream 'R' (alias 'R')" in caught.value.message
    assert "stream 'plain' (alias 'p') declares none" in caught.value.message
    assert "event_time for 'plain'" in caught.value.remedy
    document = {
        "from": [{"stream": "R"}, {"stream": "plain"}],
        "select": ["R.k"],
        "where": ["R.k = plain.k"],
    }
    with pytest.raises(QueryError) as caught:
        parse_structured("q", document, living(R=5))
    assert caught.value.field == "from[1]"


def test_a_condition_that_it_leaves_no_room_for_is_refused() -> None:
    sql = f"SELECT R.k FROM {JOIN} AND S.ts >= R.ts + INTERVAL 10 MINUTE"
    assert parse_sql("q", sql, living(R=10 * MINUTE)).bounds[0] == (0, 10 * MINUTE)
    assert parse_sql("q", sql, living(S=5)).bounds == ((0, None), (-10 * MINUTE, 0))
    with pytest.raises(QueryError) as caught:
        parse_sql("q", sql, living(R=10 * MINUTE - 1))
    assert caught.value.code == "unsatisfiable-ttl"
    assert "R, S" in caught.value.message
    assert "stream 'R'" in caught.value.message
    assert "lengthen" in caught.value.remedy


def test_a_contradiction_of_the_querys_own_is_told_as_such() -> None:
    sql = f"SELECT R.k FROM {JOIN} AND R.ts < S.ts AND S.ts < R.ts"
    with pytest.raises(QueryError) as caught:
        parse_sql("q", sql, living(R=5))
    assert caught.value.code == "unsatisfiable-time-bounds"


@pytest.mark.parametrize(
    ("name", "ttl", "code"), [("plain", 5, "ttl-without-event-time"), ("R", -1, "negative-ttl")]
)
def test_streams_that_cannot_have_one(name: str, ttl: int, code: str) -> None:
    with pytest.raises(StreamError) as caught:
        replace(STREAMS[name], ttl=ttl)
    assert (caught.value.code, caught.value.field) == (code, "retention.ttl")
    assert caught.value.remedy


def test_costs_follow_it() -> None:
    statistics = given_statistics(default=1000.0, selectivity_default=0.01, history=100 * MINUTE)
    sql = f"SELECT R.k FROM {JOIN} JOIN T ON T.l = S.l"

    def cost(*ttls: int) -> float:
        query = parse_sql("q", sql, living(**dict(zip("RST", ttls, strict=False))))
        return optimise([query], statistics, Options()).cost

    assert cost(MINUTE, MINUTE, MINUTE) < cost(9 * MINUTE, 9 * MINUTE, 9 * MINUTE) < cost()
    assert cost(200 * MINUTE) == cost()


def test_the_ruleset_has_it() -> None:
    known = rules(0, {"q": RS}, streams=(replace(R, ttl=7), S, T))
    document = json.loads(rulesets.dumps(known))
    assert [s["ttl"] for s in document["streams"]] == [7, None, None]
    assert document["queries"][0]["retention"] == [[0, 7], [None, 0]]
    assert rulesets.from_json(document) == known


PROBLEM = """
streams:
  R: {rate: 100, retention: {ttl: %s}}
  S: {rate: 100}
queries:
  q: {relations: [R, S], predicates: ["R.a = S.a"]}
"""


def test_problem_files_have_it() -> None:
    (query,) = parse_problem(load_yaml(PROBLEM % "10m")).queries
    assert query.bounds == ((0, 10 * MINUTE), (None, 0))


@pytest.mark.parametrize("ttl", ["soon", "-5m", "[1]"])
def test_problem_files_with_a_bad_one(ttl: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_problem(load_yaml(PROBLEM % ttl))
    assert caught.value.field == "streams.R.retention.ttl"

"""Tests of compiled rulesets with streams that keep the latest row per key."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from anabranch_contract.errors import RulesetError, StreamError
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import LatestRule, Ruleset, StoreId, arrival_edge
from anabranch_contract.queries.joins import RelationId
from anabranch_contract.queries.mirs import MirId
from tests.support.cases.sample_streams import sample_streams
from tests.support.cases.states import RS, R, S, T, rules

STREAMS = sample_streams()
KEEPING = replace(S, latest=("a",))


def planned(sql: str, *latest: str, parallelism: int = 1) -> Ruleset:
    """Return the ruleset of a query where S keeps the latest row of a key."""
    streams = (R, replace(S, latest=latest), T)
    return rules(0, {"q": sql}, streams=streams, parallelism=parallelism)


@pytest.mark.parametrize(
    ("stream", "key", "code"),
    [
        ("plain", ("k",), "latest-without-event-time"),
        ("R", ("nowhere",), "bad-latest"),
        ("R", ("k", "k"), "bad-latest"),
        ("R", ("g",), "bad-latest"),
    ],
)
def test_streams_that_cannot(stream: str, key: tuple[str, ...], code: str) -> None:
    with pytest.raises(StreamError) as caught:
        replace(STREAMS[stream], latest=key)
    assert (caught.value.code, caught.value.field) == (code, "retention.latest")
    assert caught.value.remedy


@pytest.mark.parametrize("key", [("k",), ("s", "l"), ("p", "w", "day", "ts")])
def test_streams_that_can(key: tuple[str, ...]) -> None:
    assert replace(STREAMS["R"], latest=key).latest == key


def test_a_store_of_the_plan_gets_the_index() -> None:
    found = planned(RS, "b")
    (rule,) = found.latest_rules
    assert rule == LatestRule(S.name, RelationId("S"), StoreId("S/1"), (("b", "bigint"),))
    assert [s.id for s in found.stores] == ["R/1", "S/1"]
    assert rule.index in found.stores[1].indexes


@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_tuples_are_kept_where_a_filter_would_hide_later_ones(parallelism: int) -> None:
    sql = f"{RS} WHERE S.b > 3"
    plain = planned(sql, parallelism=parallelism)
    assert plain.latest_rules == ()
    found = planned(sql, "b", parallelism=parallelism)
    (rule,) = found.latest_rules
    (added,) = {s.id for s in found.stores} - {s.id for s in plain.stores}
    assert rule.store == added == f"S[b:bigint]/{parallelism}"
    spec = next(s for s in found.stores if s.id == added)
    assert (spec.mir, spec.relations, spec.partitions) == (MirId("S"), ("S",), parallelism)
    assert (arrival_edge(RelationId("S")), added) in {(r.edge, r.store) for r in found.store_rules}
    assert RelationId("S") in {r.id for r in found.relations}


def test_nothing_is_kept_of_streams_that_nobody_reads() -> None:
    assert planned("SELECT a FROM R", "a").latest_rules == ()
    assert planned("SELECT a FROM S", "a").latest_rules != ()


def test_intermediate_results_keep_the_key() -> None:
    wide = replace(S, columns=(*S.columns, ("c", S.columns[0][1])))
    sql = "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"

    def kept(stream: object) -> set[tuple[str, str]]:
        found = rules(0, {"q": sql, "p": RS}, streams=(R, stream, T))  # type: ignore[arg-type]
        return {
            (str(label), column)
            for store in found.stores
            if len(store.members) > 1
            for label, column in store.columns
        }

    assert ("S", "c") not in kept(wide)
    if kept(wide):
        assert ("S", "c") in kept(replace(wide, latest=("c",)))


def test_the_ruleset_has_it() -> None:
    found = planned(RS, "b", "a")
    document = json.loads(rulesets.dumps(found))
    assert rulesets.from_json(document) == found
    assert document["version"] == rulesets.VERSION


def test_dangling_rules_are_refused() -> None:
    found = planned(RS, "b")
    (rule,) = found.latest_rules
    for bad in (
        structs.replace(rule, store=StoreId("none")),
        structs.replace(rule, relation=RelationId("none")),
        structs.replace(rule, key=(("ts", "timestamp"),)),
    ):
        with pytest.raises(RulesetError):
            replace(found, latest_rules=(bad,)).validate()

"""Tests of the joint plan as a graph, from rules and measurements written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.rest.planning.joint_plan import JointPlanOut
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_service.planning.rations import flows, kept_shares, seconds_of
from anabranch_service.presenters.joint_plan import (
    MOST_GROUPS,
    MOST_QUERIES,
    MOST_STORES,
    OTHERS,
    _Graph,
    _grouped,
    _Link,
    _merged,
    _Several,
    joint_plan_out,
)
from anabranch_service.presenters.query_plan import MeasuredFlows
from anabranch_service.registry.describe import describe
from tests.service.conftest import CHAIN, PAIR
from tests.service.planning.test_rations import JOINED, THREE, TWO, period, rules_of
from tests.support.worlds.service import Service


def plan_of(*sql: str, query: str | None = None) -> JointPlanOut:
    rules, queries = rules_of(*sql)
    periods = [period(rules)]
    found = flows(rules, periods)
    meanings = {str(q.id): describe(q, JOINED) for q in queries}
    cpu = seconds_of(rules, periods, found, kept_shares(rules, periods))
    return joint_plan_out(rules, meanings, MeasuredFlows(found, 0.0, cpu, measured=True), query)


def test_a_query_that_shares_an_edge_has_its_part_of_the_tuples() -> None:
    rules, _ = rules_of(TWO)
    found, (output, *_) = flows(rules, [period(rules)]), rules.output_rules
    whole = MeasuredFlows(found, 0.0, 1.0, measured=True)
    part = replace(whole, kept={output.query: 0.25})

    def made(measured: MeasuredFlows) -> float:
        plan = joint_plan_out(rules, {}, measured)
        (rate,) = [n.tuples_per_second for n in plan.nodes if n.kind == "query"]
        return rate

    assert 0 < made(whole) == pytest.approx(4 * made(part))


def test_streams_that_are_read_as_a_whole_lead_to_queries() -> None:
    plan = plan_of(TWO)
    assert [(n.kind, n.label) for n in plan.nodes] == [
        ("stream", "r"),
        ("stream", "s"),
        ("query", "q0"),
    ]
    assert [(link.source, link.target) for link in plan.links] == [
        ("stream:r", "query:q0"),
        ("stream:s", "query:q0"),
    ]
    # 100 tuples a second of each stream; each tuple finds 2 in the other stream.
    first = plan.links[0]
    assert first.tuples_per_second == pytest.approx(100 + 200)
    assert first.cpu == pytest.approx(1.0)
    assert plan.nodes[-1].tuples_per_second == pytest.approx(400)
    assert plan.queries == 1


def test_all_cpu_time_is_on_links_but_for_results() -> None:
    plan = plan_of(THREE, TWO)
    results = sum(n.tuples_per_second for n in plan.nodes if n.kind == "query")
    assert sum(link.cpu for link in plan.links) + results * 0.05 / 100 == pytest.approx(plan.cpu)


def test_a_shared_step_is_paid_in_equal_parts() -> None:
    alone, both = plan_of(TWO), plan_of(TWO, TWO)
    for one in alone.links:
        assert one.shared == (1 if one.target == "query:q0" else 0)
        for twin in both.links:
            if (twin.source, twin.target) == (one.source, one.target) and one.shared:
                assert twin.shared == 2
                assert twin.cpu == pytest.approx(one.cpu / 2)
    assert [n.queries for n in both.nodes if n.kind == "stream"] == [["q0", "q1"]] * 2


def test_filters_are_shown_in_words_and_no_id_of_the_planner_is() -> None:
    plan = plan_of("SELECT r.x FROM r JOIN s ON r.a = s.a WHERE r.x > 10", TWO)
    relations = {(n.label, n.detail) for n in plan.nodes if n.kind == "relation"}
    assert relations == {("r", "where x > 10"), ("r", "all tuples")}
    shown = " ".join(f"{n.label} {n.detail}" for n in plan.nodes)
    assert not set("[]@#*") & set(shown)


def test_one_query_has_only_what_it_needs() -> None:
    plan = plan_of(TWO, "SELECT s.b FROM s JOIN t ON s.b = t.b", query="q1")
    assert {n.id for n in plan.nodes if n.kind in ("stream", "query")} == {
        "stream:s",
        "stream:t",
        "query:q1",
    }
    assert plan.queries == 2


def test_many_queries_that_are_fed_alike_are_one_node() -> None:
    many = [f"SELECT r.x + {n} AS y FROM r JOIN s ON r.a = s.a" for n in range(MOST_QUERIES)]
    plan = plan_of(*many, THREE)
    ends = [n for n in plan.nodes if n.kind in ("group", "query")]
    assert [(n.kind, n.label, len(n.queries)) for n in ends] == [
        ("query", f"q{MOST_QUERIES}", 1),
        ("group", f"{MOST_QUERIES} queries", MOST_QUERIES),
    ]
    assert plan.queries == MOST_QUERIES + 1
    one = plan_of(*many, THREE, query="q3")
    assert [n.label for n in one.nodes if n.kind == "query"] == ["q3"]


def test_many_groups_of_queries_leave_the_costliest_and_others_by_streams() -> None:
    streams = [f"stream:s{n}" for n in range(8)]
    # Two queries of each choice of 2 to 7 streams, from the cheapest choice to the costliest.
    choices = [streams[first : first + n] for n in range(2, 8) for first in range(9 - n)]
    links = {
        (stream, f"query:q{at}{twin}"): _Link(1.0, float(at), 1)
        for at, choice in enumerate(choices)
        for twin in "ab"
        for stream in choice
    }
    names = [f"q{at}{twin}" for at in range(len(choices)) for twin in "ab"]
    merged, groups = _grouped(links, names)
    assert sorted(name for members in groups.values() for name in members) == sorted(names)
    assert len(groups) == MOST_GROUPS
    others = {ident: members for ident, members in groups.items() if ident.startswith(OTHERS)}
    dearest = [members for ident, members in groups.items() if ident not in others]
    assert sorted(dearest) == sorted([f"q{at}a", f"q{at}b"] for at in range(21, 27))
    several = _Several(groups, {target: frozenset(streams[:3]) for _, target in merged})
    assert [several.texts(ident) for ident in sorted(others)] == [
        ("14 other queries", "of 2 streams each"),
        ("12 other queries", "of 3 streams each"),
        ("10 other queries", "of 4 streams each"),
        ("6 other queries", "of 5 or more streams each"),
    ]
    assert several.texts("group:0") == ("2 queries", "s0, s1, s2")
    assert sum(link.cpu for link in merged.values()) == sum(link.cpu for link in links.values())


def test_many_results_of_the_same_streams_are_one_node() -> None:
    graph = _Graph()
    for n in range(MOST_STORES + 1):
        for source, target in (("stream:r", f"result:m{n}"), (f"result:m{n}", f"query:q{n}")):
            graph.links[source, target].add(2.0, 0.5, 1)
        graph.made[f"result:m{n}"] = 3.0
    streams_of = {f"result:m{n}": ("r", "s") for n in range(MOST_STORES + 1)}
    links = _merged(graph, streams_of)
    (result,) = {target for source, target in links if source == "stream:r"}
    assert links["stream:r", result].tuples == 2.0 * (MOST_STORES + 1)
    assert len(links) == MOST_STORES + 2
    assert graph.made[result] == 3.0 * (MOST_STORES + 1)
    # Few results have a node each.
    few = _Graph({link: one for link, one in graph.links.items() if link[1] != "result:m0"})
    few.links = {link: one for link, one in few.links.items() if link[0] != "result:m0"}
    assert _merged(few, streams_of) == few.links


def test_kept_results_lie_between_relations_and_queries() -> None:
    queries = tuple(parse_sql(f"q{n}", THREE, JOINED) for n in range(3))
    plan = optimise(queries, Statistics(), Options())
    streams = tuple(JOINED.values())
    rules = compile_ruleset(plan, queries, streams, epoch=1, parallelism=1, sinks={})
    found = flows(rules, [period(rules)])
    graph = joint_plan_out(rules, {}, MeasuredFlows(found, 0.0, 1.0, measured=True))
    kept = [n for n in graph.nodes if n.kind == "result"]
    assert bool(kept) == any(len(s.members) > 1 for s in rules.stores)
    for node in kept:
        assert " ⋈ " in node.label
        assert any(link.target == node.id for link in graph.links)
        assert any(link.source == node.id for link in graph.links)
    for link in graph.links:
        layer = {n.id: n.layer for n in graph.nodes}
        assert layer[link.source] < layer[link.target]


def test_the_service_gives_the_plan_that_runs(shop: Service) -> None:
    assert shop.get("/v1/plan", 404)["code"] == "no-plan"
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    plan = shop.get("/v1/plan")
    assert (plan["epoch"], plan["revision"], plan["measured"]) == (0, 0, False)
    assert {n["label"] for n in plan["nodes"] if n["kind"] == "query"} == {"pair", "chain"}
    alone = shop.get("/v1/plan?query=pair")
    assert {n["label"] for n in alone["nodes"] if n["kind"] == "query"} == {"pair"}

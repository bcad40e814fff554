"""Tests of explanations of dry runs and epochs: shares, differences, reasons, assumptions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.plans.decisions import from_document
from anabranch_service.errors import InvalidInput
from anabranch_service.planning.task import PlanTask
from anabranch_service.planning.what_if import explanation as what_if
from anabranch_service.planning.what_if.assumptions import Names, assume
from anabranch_service.planning.widths import stream_width
from anabranch_service.registry.records import EpochRecord
from anabranch_service.registry.statements import read_statement, usable_streams
from tests.service.conftest import CHAIN, PAIR
from tests.service.planning.test_epoch import RECORDS
from tests.support.cases.planned import plan_queries
from tests.support.worlds.service import Service

PATH = "/v1/plans:dry-run"
BOTH: dict[str, Any] = {"add": [{"id": "pair", "sql": PAIR}, {"id": "chain", "sql": CHAIN}]}
JOIN = "orders.customer_id = customers.customer_id"


def test_shares_add_up_to_the_plan(shop: Service) -> None:
    answer = shop.post(PATH, BOTH, 200)
    shares = {s["query"]: s for s in answer["shares"]["queries"]}
    assert set(shares) == {"pair", "chain"}
    assert (answer["shares"]["omitted"], answer["shares"]["note"]) == (0, "")
    for method in ("shapley", "proportional"):
        assert sum(s[method] for s in shares.values()) == pytest.approx(answer["cost"])
    alone = sum(s["standalone"] for s in shares.values())
    assert alone == pytest.approx(answer["individual_cost"])
    for share in shares.values():
        assert share["marginal"] <= share["shapley"] <= share["part"]
    assert shares["chain"]["shapley"] > shares["pair"]["shapley"]
    assert answer["shares"]["queries"][0]["query"] == "chain"


def test_reasons_name_what_is_shared(shop: Service) -> None:
    reasons = shop.post(PATH, BOTH, 200)["reasons"]
    assert reasons["shared"]
    for reason in reasons["shared"]:
        assert reason["users"] == ["chain", "pair"]
        assert reason["saved"] == reason["cost"]
    assert reasons["totals"]["shared"] == len(reasons["shared"])
    assert reasons["totals"]["kept"] == len(reasons["kept"])


_JOINED = "FROM orders o JOIN customers c USING (customer_id)"
_GROUPED = f"SELECT c.city, {{}} AS x {_JOINED} GROUP BY c.city"


def test_tables_are_priced_and_divided(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "counts", "sql": _GROUPED.format("count(*)")})
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    sql = _GROUPED.format("sum(o.total)")
    found = shop.post("/v1/queries:explain", {"sql": sql}, 200)
    table, plan = found["table"], found["plan"]
    assert [one["query"] for one in table["queries"]] == ["counts", "explained"]
    assert table["grouping"] == "customers.city"
    assert sorted(table["aggregates"]) == ["count(*)", "sum(orders.total)"]
    assert plan["tables"]["tables"] == [table]
    for unit in ("seconds", "bytes"):
        assert sum(one[unit] for one in table["queries"]) == pytest.approx(table[unit])
        assert 0 < plan["tables"][unit] < plan["tables"][f"alone_{unit}"]
    assert "GROUP BY customers.city; count(*), sum(orders.total)" in plan["text"]
    # Groups of a running query have had more rows than the new one would see. Sums of these are
    # subtracted; maxima can't be.
    shop.plan(-1)
    found = shop.post("/v1/queries:explain", {"sql": sql}, 200)
    assert [one["query"] for one in found["table"]["queries"]] == ["counts", "explained"]
    assert len(found["plan"]["tables"]["tables"]) == 1
    sql = _GROUPED.format("max(o.total)")
    shop.post("/v1/queries", {"id": "most", "sql": sql})
    shop.plan(0)
    found = shop.post("/v1/queries:explain", {"sql": sql}, 200)
    apart = {
        tuple(one["query"] for one in table["queries"]): table["apart"]
        for table in found["plan"]["tables"]["tables"]
    }
    assert set(apart) == {("counts", "explained"), ("most",)}
    assert "max(orders.total) can't be subtracted" in apart["most",]
    assert shop.get("/v1/epochs/0")["tables"]["seconds"] > 0


def test_there_is_nothing_to_compare_with_before_the_first_epoch(shop: Service) -> None:
    answer = shop.post(PATH, BOTH, 200)
    assert (answer["diff"], answer["diff_reason"]) == (None, "no epoch has been published yet")


def test_the_difference_is_to_the_newest_epoch(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    same = shop.post(PATH, {}, 200)["diff"]
    assert (same["epoch"], same["unchanged"]) == (0, True)
    assert same["cost_before"] == same["cost_after"]

    more = shop.post(PATH, {"add": [{"id": "chain", "sql": CHAIN}]}, 200)
    diff = more["diff"]
    assert (diff["unchanged"], more["diff_reason"]) == (False, "")
    assert diff["cost_after"] == pytest.approx(more["cost"])
    assert "items" in {s["label"].partition("[")[0] for s in diff["stores"]["built"]}
    assert diff["totals"]["built"]["bytes"] == sum(s["bytes"] for s in diff["stores"]["built"])
    assert diff["totals"]["removed"]["count"] == len(diff["steps"]["removed"])

    less = shop.post(PATH, {"drop": ["pair"]}, 200)["diff"]
    assert less["steps"]["added"] == less["stores"]["built"] == []
    assert less["cost_after"] == 0
    assert less["cost_before"] == same["cost_before"]


def test_bytes_follow_the_columns_types_or_what_is_stated(shop: Service) -> None:
    shop.plan(-1)
    body = {"add": [{"sql": PAIR}], "statistics": {"orders": 10, "customers": 20}}

    def built(**more: Any) -> dict[str, float]:
        diff = shop.post(PATH, {**body, **more}, 200)["diff"]
        return {s["label"].partition("[")[0]: s["bytes"] for s in diff["stores"]["built"]}

    # orders: two bigint, a double, a timestamp; customers: a bigint and a text.
    assert built() == {"orders": 10 * 32.0, "customers": 20 * (8 + 24.0)}
    assert built(widths={"orders": 1000}) == {"orders": 10_000.0, "customers": 640.0}


def test_an_epoch_says_who_costs_what_and_what_changed(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(0)
    first, second = shop.get("/v1/epochs/0"), shop.get("/v1/epochs/1")
    assert first["diff"] is None
    assert "no epoch" in first["diff_reason"]
    assert second["diff"]["epoch"] == 0
    assert second["diff"]["totals"]["added"]["count"] > 0
    shares = second["shares"]["queries"]
    assert sum(s["shapley"] for s in shares) == pytest.approx(second["cost"])
    assert second["reasons"]["shared"]
    # Decisions are kept for comparison with later plans, and are not part of the API.
    assert "decisions" not in second
    details = json.loads(str(shop.redis.get(f"{shop.keys.namespace}:plans:1")))
    assert from_document(details["decisions"]).footprint.steps


def test_a_query_that_is_gone_is_still_part_of_the_running_plan(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    shop.call("DELETE", "/v1/queries/chain", 202)
    diff = shop.post(PATH, {}, 200)["diff"]
    assert diff["cost_before"] == pytest.approx(shop.get("/v1/epochs/0")["cost"])
    assert all(s["cost"] is not None for s in diff["steps"]["removed"])
    shop.plan(0)
    assert shop.get("/v1/epochs/1")["diff"]["totals"]["removed"]["count"] > 0


def test_an_epoch_without_steps_can_be_read_but_not_compared_with(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    key = shop.keys.epoch(0)
    record = json.loads(str(shop.redis.get(key)))
    record |= json.loads(str(shop.redis.getdel(f"{shop.keys.namespace}:plans:0")))
    for name in ("decisions", "shares", "diff", "diff_reason", "reasons"):
        del record[name]
    shop.redis.set(key, json.dumps(record))
    assert shop.get("/v1/epochs/0")["shares"] is None
    answer = shop.post(PATH, {}, 200)
    assert answer["diff"] is None
    assert "version None" in answer["diff_reason"]
    record["decisions"] = {"version": 99}
    shop.redis.set(key, json.dumps(record))
    assert "version 99" in shop.post(PATH, {}, 200)["diff_reason"]
    shop.plan(0)
    assert shop.get("/v1/epochs/1")["diff"] is None
    shop.plan(1)
    assert shop.get("/v1/epochs/2")["diff"]["unchanged"] is True


def test_distinct_counts_and_selectivities_can_be_assumed(shop: Service) -> None:
    plain = shop.post(PATH, BOTH, 200)["cost"]
    body = {**BOTH, "selectivity": {JOIN: 1.0}}
    assert shop.post(PATH, body, 200)["cost"] > plain
    turned = {**BOTH, "selectivity": {"customers.customer_id=orders.customer_id": 1.0}}
    assert shop.post(PATH, turned, 200)["cost"] == shop.post(PATH, body, 200)["cost"]
    few = {"orders.customer_id": 2, "customers.customer_id": 2}
    assert shop.post(PATH, {**BOTH, "distinct": few}, 200)["cost"] > plain


def test_a_deadline_of_zero_gives_an_honest_plan(shop: Service) -> None:
    answer = shop.post(PATH, {**BOTH, "deadline": 0}, 200)
    assert answer["deadline"] == 0
    assert answer["cost"] > 0
    assert 0 <= answer["bound"] <= answer["cost"]
    assert answer["gap"] == pytest.approx(1 - answer["bound"] / answer["cost"])
    assert answer["shares"]["queries"]


def test_a_deadline_is_capped_by_the_service_s_own(shop: Service) -> None:
    answer = shop.post(PATH, {**BOTH, "deadline": 1e9}, 200)
    assert answer["deadline"] == shop.settings.planning.solve_seconds
    assert shop.post(PATH, {**BOTH, "deadline": 0.5}, 200)["deadline"] == 0.5


def test_formulation_and_solver_can_be_chosen(shop: Service) -> None:
    answer = shop.post(PATH, {**BOTH, "formulation": "paper", "solver": "highs"}, 200)
    assert (answer["formulation"], answer["solver"]) == ("paper", "highs")
    assert answer["cost"] == pytest.approx(shop.post(PATH, BOTH, 200)["cost"])


def test_a_summary_is_short(shop: Service) -> None:
    many = {"add": [{"id": f"q{n}", "sql": CHAIN} for n in range(210)], "detail": "summary",
            "deadline": 0.5}  # fmt: skip
    shop.plan(-1)
    short = shop.post(PATH, many, 200)
    assert list(short["explain"]) == ["totals"]
    assert short["text"].count("\n") == 1
    assert len(short["shares"]["queries"]) == 200
    assert short["shares"]["omitted"] == 10
    assert short["diff"]["totals"]["added"]["count"] >= len(short["diff"]["steps"]["added"])
    assert len(json.dumps(short)) < 200_000


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"distinct": {"orders.nothing": 5}}, "distinct.orders.nothing"),
        ({"distinct": {"nothing.customer_id": 5}}, "distinct.nothing.customer_id"),
        ({"distinct": {"orders.customer_id": 0}}, "distinct.orders.customer_id"),
        (
            {"distinct": {"orders.customer_id": 50}, "statistics": {"orders": 10}},
            "distinct.orders.customer_id",
        ),
        ({"selectivity": {"orders.total = customers.city": 0.5}},
         "selectivity.orders.total = customers.city"),
        ({"selectivity": {JOIN: 1.5}}, f"selectivity.{JOIN}"),
        ({"selectivity": {JOIN: 0}}, f"selectivity.{JOIN}"),
        ({"selectivity": {"orders": 0.5}}, "selectivity.orders"),
        ({"widths": {"nothing": 8}}, "widths.nothing"),
        ({"widths": {"orders": -8}}, "widths.orders"),
        ({"deadline": -1}, "deadline"),
        ({"solver": "gurobi"}, "solver"),
        ({"formulation": "loose"}, "formulation"),
        ({"detail": "some"}, "detail"),
    ],
)  # fmt: skip
def test_assumptions_that_make_no_sense(shop: Service, body: dict[str, Any], field: str) -> None:
    problem = shop.post(PATH, {**BOTH, **body}, 422)
    assert [e["field"] for e in problem["errors"]] == [field]
    assert problem["remedy"]


def test_measured_statistics_stay_where_nothing_else_is_assumed(shop: Service) -> None:
    arrivals = {"orders": 500_000, "customers": 1000}
    distincts = {"orders": {"customer_id": 900.0}, "customers": {"customer_id": 1000.0}}
    shop.plan(-1)
    shop.plan(0, snapshot=Snapshot(0, 4, 4, arrivals=arrivals, distincts=distincts))
    measured = shop.post(PATH, {"add": [{"sql": PAIR}]}, 200)
    same = shop.post(
        PATH, {"add": [{"sql": PAIR}], "distinct": {"customers.customer_id": 1000}}, 200
    )
    assert same["cost"] == measured["cost"]


STREAMS = usable_streams(RECORDS.values())


def task() -> PlanTask:
    return PlanTask(
        queries=(),
        streams=STREAMS,
        statistics=Statistics(),
        options=PlanningSettings(
            optimizer=Optimizer.CLASH, objective=Objective.TUPLES, parallelism=2
        ),
        epoch=3,
        sinks={},
        seconds=5.0,
    )


def test_composite_keys_and_filtered_relations_can_be_named() -> None:
    sql = (
        "SELECT o.total FROM orders o JOIN items i "
        "ON o.order_id = i.order_id AND o.ts = i.ts WHERE o.total > 5"
    )
    query = read_statement(sql).normalise("q", STREAMS)
    names = Names([query])
    orders = next(r.id for r in query.relations if r.stream == "orders")
    assert orders != "orders"
    stated = assume(
        Statistics(),
        names,
        {},
        {"orders.ts,order_id": 7, f"{orders}.ts": 3},
        {f"items.order_id = {orders}.order_id": 0.25},
    )
    assert stated.distinct(orders, ("order_id", "ts")) == 7
    assert stated.distinct(orders, ("ts",)) == 3
    assert stated.distinct(orders, ("order_id",)) is None
    assert [stated.selectivity(p) for p in query.predicates] == [0.25, None]
    with pytest.raises(InvalidInput) as caught:
        assume(Statistics(), names, {}, {"orders.ts,ts": 7}, {})
    assert "items.order_id" in caught.value.remedy


def test_a_plan_is_worth_more_than_its_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    query = read_statement(PAIR).normalise("pair", STREAMS)

    def broken(*_: object, **__: object) -> None:
        raise QueryError("broken", "no reasons today")

    monkeypatch.setattr(what_if, "reasons", broken)
    found = plan_queries([query], task()).explanation
    assert found is not None
    assert found.shares is not None
    assert found.reasons is None
    assert "no reasons today" in found.diff_reason


def test_every_stored_field_survives_the_record(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    text = str(shop.redis.get(shop.keys.epoch(0)))
    assert EpochRecord.model_validate_json(text).model_dump_json() == text


def test_widths_by_type() -> None:
    assert {name: stream_width(s) for name, s in STREAMS.items()} == {
        "customers": 32.0,
        "orders": 32.0,
        "items": 24.0,
    }

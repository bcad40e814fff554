"""Tests of ``/v1/queries:explain``: plans before and after, costs, refusals."""

from __future__ import annotations

import pytest

from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.service import Service

PATH = "/v1/queries:explain"


def test_a_query_that_runs(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    answer = shop.post(PATH, {"sql": CHAIN}, 200)
    assert answer["refused"] is None
    assert answer["sql"] == CHAIN
    assert "Join inner" in answer["before"]["text"]
    assert "MultiJoin of 3" in answer["after"]["text"]
    assert answer["after"]["data"]["node"] == "Project"
    assert answer["after"]["dot"].startswith("digraph")
    (join,) = answer["multijoins"]
    assert len(join["inputs"]) == 3
    assert len(join["predicates"]) == 2
    assert [replaced.partition(" ")[0] for replaced in join["replaces"]] == [
        "Join",
        "Exchange",
        "Join",
    ]
    assert answer["normalised"]["aliases"]
    assert {order["start"] for order in answer["orders"]} == {"customers", "items", "orders"}
    asked = {step["store"] for order in answer["orders"] for step in order["steps"]}
    assert {store["label"] for store in answer["stores"]} == asked
    assert answer["shared_with"] == ["pair"]
    before = shop.post("/v1/plans:dry-run", {}, 200)["cost"]
    assert answer["added_cost"] == pytest.approx(answer["plan"]["cost"] - before)
    assert answer["added_cost"] > 0
    assert [q["id"] for q in shop.get("/v1/queries")["items"]] == ["pair"]


def test_the_same_in_other_words_costs_nothing_more(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "explained", "sql": PAIR})
    answer = shop.post(PATH, {"sql": f"SELECT * FROM ({PAIR}) AS again"}, 200)
    assert answer["added_cost"] == pytest.approx(0)
    assert answer["shared_with"] == ["explained"]


def test_a_summary_leaves_out_the_plan_of_the_other_queries(shop: Service) -> None:
    for number in range(8):
        sql = f"{PAIR} WHERE o.total > {number}"
        shop.post("/v1/queries", {"id": f"pair-{number}", "sql": sql})
    full, summary = (shop.post(PATH, {"sql": CHAIN, "detail": d}, 200) for d in ("full", "summary"))
    assert set(summary["plan"]["explain"]) == {"totals"}
    assert summary["plan"]["text"].count("\n") == 1 < full["plan"]["text"].count("\n")
    assert len(summary["orders"]) == len(full["orders"]) > 0
    assert summary["stores"]
    assert summary["added_cost"] == pytest.approx(full["added_cost"])


def test_a_query_that_does_not_run_is_explained_as_far_as_its_joins(shop: Service) -> None:
    sql = f"SELECT try_avg(c.part) AS n\nFROM ({CHAIN}) AS c"
    answer = shop.post(PATH, {"sql": sql}, 200)
    assert answer["before"]["data"]["node"] == "Join"
    assert "MultiJoin of 3" in answer["after"]["text"]
    assert len(answer["multijoins"]) == 1
    assert answer["refused"]["code"] == "unsupported-sql"
    assert "line 1, column" in answer["refused"]["message"]
    assert answer["plan"] is answer["added_cost"] is answer["normalised"] is None
    assert answer["orders"] == answer["stores"] == answer["shared_with"] == []


def test_a_query_whose_joins_do_not_run_is_refused(shop: Service) -> None:
    sql = f"SELECT q.n FROM (SELECT count(*) AS n FROM ({CHAIN}) AS c) AS q\nWHERE q.n > 1"
    (error,) = shop.post(PATH, {"sql": sql}, 422)["errors"]
    assert (error["code"], error["line"]) == ("unsupported-sql", 1)
    assert "in a replay" in error["message"]


def test_the_mark_of_a_text_file_is_no_part_of_a_statement(shop: Service) -> None:
    assert shop.post(PATH, {"sql": "\ufeff" + CHAIN}, 200)["sql"] == CHAIN
    assert shop.post("/v1/queries", {"id": "pair", "sql": "\ufeff" + PAIR})["sql"] == PAIR
    wrong = {"sql": "\ufeff" + PAIR.replace("o.order_id", "o.day")}
    refused = shop.post("/v1/queries", wrong, 422)["errors"][0]
    assert (refused["line"], refused["column"], refused["field"]) == (1, 8, "sql")
    shop.post(PATH, {"sql": "\ufeff"}, 422)


def test_another_dialect(shop: Service) -> None:
    sql = (
        'SELECT "o".order_id::bigint AS i FROM orders "o" '
        'JOIN customers c ON c.customer_id = "o".customer_id'
    )
    answer = shop.post(PATH, {"sql": sql, "dialect": "postgres"}, 200)
    assert answer["refused"] is None, answer["refused"]
    assert answer["sql"].startswith("SELECT CAST(`o`.order_id AS BIGINT) AS i FROM")
    created = shop.post("/v1/queries", {"sql": sql, "dialect": "postgres"})
    assert created["sql"] == answer["sql"]
    problem = shop.post("/v1/queries", {"sql": sql.replace(".order_id::", ".nope::"),
                                        "dialect": "postgres"}, 422)  # fmt: skip
    assert "there is no column 'nope'" in problem["detail"]
    assert (problem["errors"][0]["line"], problem["errors"][0]["column"]) == (1, 8)
    ambiguous = sql.replace('"o".order_id::bigint', "customer_id::bigint")
    problem = shop.post("/v1/queries", {"sql": ambiguous, "dialect": "postgres"}, 422)
    assert "Spark's words" not in problem["detail"]
    assert (problem["errors"][0]["line"], problem["errors"][0]["column"]) == (1, 8)
    problem = shop.post("/v1/queries", {"sql": sql.replace("order_id::bigint", "total::bigint"),
                                        "dialect": "postgres"}, 422)  # fmt: skip
    assert "may have a fraction (read as postgres)" in problem["detail"]


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        (
            "oracle",
            "SELECT part FROM orders o, items i WHERE o.order_id = i.order_id (+)",
        ),
        (
            "clickhouse",
            "SELECT part FROM orders AS o FINAL JOIN items USING (order_id)",
        ),
        (
            "clickhouse",
            "SELECT part FROM orders JOIN items USING (order_id) PREWHERE part > 1",
        ),
        ("postgres", "SELECT o.ts::time AS a FROM orders o JOIN items i USING (order_id)"),
        ("tsql", "SELECT TOP 5 PERCENT order_id AS a FROM orders JOIN items USING (order_id)"),
    ],
)
def test_other_meanings_are_refused_everywhere(shop: Service, dialect: str, sql: str) -> None:
    body = {"sql": sql, "dialect": dialect}
    for answer in (
        shop.post(PATH, body, 422),
        shop.post("/v1/queries", body, 422),
        shop.call("PUT", "/v1/queries/q", 422, body),
        shop.post("/v1/plans:dry-run", {"add": [body]}, 422),
    ):
        assert answer["errors"][0]["code"] == "unsupported-sql"
        assert answer["remedy"]


@pytest.mark.parametrize(
    ("body", "code", "field", "position"),
    [
        ({"sql": "SELECT FROM orders"}, "malformed-sql", "sql", None),
        ({"sql": "SELECT o.id\nFROM ordersss o"}, "unknown-stream", "sql", (2, 6)),
        ({"sql": "SELECT id\nFROM orders WHERE nope > 1"}, "unknown-column", "sql", (2, 19)),
        ({"sql": "SELECT o.totl FROM orders o"}, "unknown-column", "sql", (1, 8)),
        ({"sql": PAIR.replace("o.order_id", "customer_id")}, "ambiguous-column", "sql", (1, 8)),
        ({"sql": "DROP TABLE orders"}, "unsupported-sql", "sql", None),
        (
            {"sql": "SELECT id FROM orders", "dialect": "klingon"},
            "unknown-dialect",
            "dialect",
            None,
        ),
        ({"sql": "SELECT a / b FROM t", "dialect": "postgres"}, "unsupported-sql", "sql", (1, 8)),
        ({"sql": "SELECT id FROM", "dialect": "mysql"}, "malformed-sql", "sql", None),
        ({"sql": PAIR, "window": {"nobody": "1 hour"}}, "unknown-alias", "window.nobody", None),
        ({}, "invalid-request", "sql", None),
    ],
)
def test_refusals(
    body: dict[str, object],
    code: str,
    field: str,
    position: tuple[int, int] | None,
    shop: Service,
) -> None:
    problem = shop.post(PATH, body, 422)
    (error, *_) = problem["errors"]
    assert (problem["code"], error["field"]) == (code, field)
    assert problem.get("remedy") or code == "invalid-request"
    if position is not None:
        assert (error["line"], error["column"]) == position
        assert f"line {position[0]}, column {position[1]}" in problem["detail"]

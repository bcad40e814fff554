"""Tests of statements that name their query (CREATE VIEW), and of statements with parameters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

WIDE = f"{PAIR} WHERE o.total > :least"


def refused(shop: Service, body: dict[str, Any], status: int = 422) -> tuple[str, str]:
    answer = shop.post("/v1/queries", body, status)
    return answer["code"], answer["errors"][0]["field"]


@pytest.mark.parametrize(
    "beginning",
    [
        "CREATE VIEW late AS ",
        "create or replace view late as\n",
        "-- a comment\nCREATE MATERIALIZED VIEW IF NOT EXISTS shop.db.late AS ",
        "CREATE OR REPLACE TABLE `late` AS ",
        'CREATE TABLE "late" AS ',
        "INSERT INTO late ",
        "insert into table shop.`late`\n",
    ],
)
def test_a_created_view_is_the_query_of_its_name(shop: Service, beginning: str) -> None:
    answer = shop.post("/v1/queries", {"sql": beginning + PAIR})
    assert (answer["id"], answer["sql"]) == ("late", PAIR)
    same = shop.call("PUT", "/v1/queries/late", 200, {"sql": beginning + PAIR, "id": "late"})
    assert same["action"] == "none"
    assert refused(shop, {"sql": beginning + PAIR}, 409) == ("duplicate-query", "name")


def test_the_name_of_a_view_and_another_id_are_refused(shop: Service) -> None:
    sql = f"CREATE VIEW late AS {PAIR}"
    assert refused(shop, {"id": "early", "sql": sql}) == ("other-name", "name")
    assert shop.post("/v1/queries", {"id": "LATE", "sql": sql})["id"] == "LATE"
    answer = shop.call("PUT", "/v1/queries/early", 422, {"sql": sql})
    assert answer["detail"] == (
        "the statement creates 'late', but the name of the query is 'early'"
    )
    assert "name it 'late'" in answer["remedy"]


def test_a_query_that_inserts_may_have_a_name_of_its_own(shop: Service) -> None:
    answer = shop.post("/v1/queries", {"id": "early", "sql": f"INSERT INTO late {PAIR}"})
    assert (answer["id"], answer["sql"]) == ("early", PAIR)
    body = {"sql": "INSERT INTO v\nSELECT o.x FROM orders o"}
    (error,) = shop.post("/v1/queries", body, 422)["errors"]
    assert (error["code"], error["line"], error["column"]) == ("unknown-column", 2, 8)


def test_a_batch_has_each_view_once(shop: Service) -> None:
    one = {"sql": f"CREATE VIEW late AS {PAIR}"}
    answer = shop.post("/v1/queries:batch", {"queries": [one, one]}, 422)
    (error,) = answer["errors"]
    assert (error["field"], error["code"]) == ("queries.1.name", "duplicate-query")
    assert error["message"] == "the batch has two queries 'late'"
    form = {"sql": f"CREATE VIEW v (a) AS {PAIR}"}
    answer = shop.post("/v1/queries:batch", {"queries": [form], "atomic": False}, 200)
    assert answer["items"][0]["problem"]["column"] == 15


def test_errors_have_their_places_in_the_whole_statement(shop: Service) -> None:
    answer = shop.post("/v1/queries", {"sql": "CREATE VIEW v AS\n  SELECT o.x FROM orders o"}, 422)
    (error,) = answer["errors"]
    assert (error["code"], error["line"], error["column"]) == ("unknown-column", 2, 10)


@pytest.mark.parametrize(
    ("sql", "code", "part"),
    [
        (f"CREATE VIEW v (a) AS {PAIR}", "unsupported-sql", "a list of columns"),
        (f"CREATE TABLE v USING parquet AS {PAIR}", "unsupported-sql", "USING between"),
        (f"CREATE VIEW `a b` AS {PAIR}", "bad-name", "'a b' can't be the name"),
        (f"CREATE TEMPORARY VIEW v AS {PAIR}", "unsupported-sql", "CREATE TEMPORARY VIEW is not"),
        (f"INSERT INTO v (a, b) {PAIR}", "unsupported-sql", "a list of columns between the name"),
        (f"INSERT INTO v PARTITION (d) {PAIR}", "unsupported-sql", "PARTITION between the name"),
        (f"INSERT OVERWRITE v {PAIR}", "unsupported-sql", "an INSERT statement"),
        ("INSERT INTO v VALUES (1)", "unsupported-sql", "an INSERT statement"),
        ("INSERT INTO", "unsupported-sql", "an INSERT statement"),
        ("INSERT INTO SELECT", "unsupported-sql", "an INSERT statement"),
        ("CREATE TABLE v (a INT)", "unsupported-sql", "streams are registered by commands"),
        ("CREATE VIEW v AS TABLE orders", "unsupported-sql", "a CREATE statement"),
    ],
)
def test_other_forms_are_refused(shop: Service, sql: str, code: str, part: str) -> None:
    answer = shop.post("/v1/queries", {"sql": sql}, 422)
    assert answer["code"] == code
    assert part in answer["detail"]


def test_parameters_are_filled_at_registration(shop: Service) -> None:
    body = {"id": "wide", "sql": WIDE, "parameters": {"least": -5}}
    assert shop.post("/v1/queries", body)["sql"] == WIDE.replace(":least", " -5")
    changed = body | {"parameters": {"least": 7}}
    answer = shop.call("PUT", "/v1/queries/wide", 200, changed)
    assert (answer["action"], answer["fields"]) == ("replaced", ["sql"])
    view = {"sql": f"CREATE VIEW v AS {WIDE}", "parameters": {"least": 1.5}}
    assert shop.post("/v1/queries", view)["sql"] == WIDE.replace(":least", "1.5")
    explained = shop.post("/v1/queries:explain", view, 200)
    assert explained["sql"] == WIDE.replace(":least", "1.5")
    dry = {"add": [view | {"id": "other"}]}
    assert shop.post("/v1/plans:dry-run", dry, 422)["code"] == "other-name"


def test_parameters_that_do_not_fit_are_refused(shop: Service) -> None:
    assert refused(shop, {"sql": WIDE}) == ("missing-parameter", "sql")
    assert refused(shop, {"sql": WIDE, "parameters": {}}) == (
        "missing-parameter",
        "parameters.least",
    )
    both = {"least": 1, "most": 2}
    assert refused(shop, {"sql": WIDE, "parameters": both}) == (
        "unknown-parameter",
        "parameters.most",
    )
    many = " OR ".join(["o.place = :s"] * 20)
    body = {"sql": f"{PAIR} WHERE {many}", "parameters": {"s": "x" * 9_000}}
    assert refused(shop, body) == ("too-long", "parameters")

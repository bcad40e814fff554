"""Tests of sinks over REST: kept as given, refused by field, passed on in the ruleset."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "topic": "pairs"}
TOPIC = {"brokers": "localhost:9092", "topic": "pairs"}
KAFKA = {
    "format": "kafka",
    "options": OPTIONS,
    "path": None,
    "mode": "append",
    "commit_interval": "500 ms",
}


def test_a_sink_reaches_the_runtime_by_the_ruleset(shop: Service) -> None:
    made = shop.post("/v1/queries", {"id": "k", "sql": PAIR, "sink": KAFKA})
    shop.post("/v1/queries", {"id": "c", "sql": PAIR, "sink": {"format": "count"}})
    shop.post("/v1/queries", {"id": "p", "sql": PAIR})
    assert made["sink"] == KAFKA
    shop.plan(-1)
    text = str(shop.redis.get(shop.keys.ruleset(0)))
    found = {q.id: q.sink for q in rulesets.loads(text).queries}
    assert found == {
        "k": SinkSpec("kafka", tuple(sorted(OPTIONS.items())), commit_interval=500_000),
        "c": SinkSpec("count"),
        "p": SinkSpec(),
    }


@pytest.mark.parametrize(
    ("sink", "field"),
    [
        ({"format": "json", "options": {"colour": "red"}}, "sink.options.colour"),
        ({"format": "json", "path": "relative"}, "sink.path"),
        ({"format": "json", "mode": "overwrite"}, "sink.mode"),
        ({"format": "kafka"}, "sink.options.brokers"),
        ({"format": "kafka", "options": {**TOPIC, "key": "country"}}, "sink.options.key"),
        ({"commit_interval": "soon"}, "sink.commit_interval"),
        ({"commit_interval": "2 hours"}, "sink.commit_interval"),
        ({"format": "count", "commit_interval": "1 s"}, "sink.commit_interval"),
        (
            {"format": "csv", "options": {"anabranch.partitionBy": "country"}},
            "sink.options.anabranch.partitionBy",
        ),
    ],
)
def test_what_can_not_work_is_refused_when_it_is_registered(
    shop: Service, sink: dict[str, object], field: str
) -> None:
    problem = shop.post("/v1/queries", {"sql": PAIR, "sink": sink}, 422)
    assert problem["errors"][0]["field"] == field
    assert problem["remedy"]


def test_a_topic_of_a_view_has_its_identity_as_key(shop: Service) -> None:
    sql = f"SELECT city, count(*) AS n {PAIR[PAIR.index('FROM') :]} GROUP BY city"
    sink = {"format": "kafka", "options": {**TOPIC, "payload": "upsert", "key": "n"}}
    problem = shop.post("/v1/queries", {"sql": sql, "sink": sink}, 422)
    assert problem["errors"][0]["field"] == "sink.options.key"
    assert "give city" in problem["remedy"]
    keyed = {**TOPIC, "payload": "upsert", "key": "city"}
    shop.post("/v1/queries", {"id": "v", "sql": sql, "sink": {**sink, "options": keyed}})
    # Another query would replace and delete this query's rows.
    problem = shop.post("/v1/queries", {"sql": sql, "sink": {**sink, "options": keyed}}, 409)
    assert problem["code"] == "sink-in-use"


def test_two_queries_do_not_write_to_one_place(shop: Service) -> None:
    files = {"format": "json", "path": "/data/pairs"}
    stream = {"format": "redis-stream", "options": {"stream": "pairs"}}
    for name, sink in (("f", files), ("s", stream)):
        shop.post("/v1/queries", {"id": name, "sql": PAIR, "sink": sink})
        problem = shop.post("/v1/queries", {"sql": PAIR, "sink": sink}, 409)
        assert (problem["code"], f"'{name}'" in problem["detail"]) == ("sink-in-use", True)
        shop.call("DELETE", f"/v1/queries/{name}", 202)
        shop.activate(name, Activation(0, {}, expired_batch=1))
    shop.progress(Progress("running"))
    # Files may be reused when their query has ended; a stream remains its first writer's.
    shop.post("/v1/queries", {"sql": PAIR, "sink": files})
    shop.post("/v1/queries", {"sql": PAIR, "sink": stream}, 409)


def test_the_command_line_describes_a_sink(shop: Service) -> None:
    url = str(shop.http.base_url)
    add = ["query", "add", PAIR, "--name", "c", "--url", url, "--json"]
    sink = ["--sink-format", "csv", "--sink-option", "sep=;", "--sink-option", "header=true"]
    path = ["--sink-path", "/data/c", "--commit-interval", "10 s"]
    made = CliRunner().invoke(app, [*add, *sink, *path])
    assert made.exit_code == 0, made.output
    assert shop.get("/v1/queries/c")["sink"] == {
        "format": "csv",
        "options": {"sep": ";", "header": "true"},
        "path": "/data/c",
        "mode": "append",
        "commit_interval": "10 s",
    }
    for wrong in (
        ["--sink-option", "a=b"],
        [*sink, "--sink-option", "sep=,"],
        ["--sink-path", "/x"],
    ):
        refused = CliRunner().invoke(app, [*add, *wrong])
        assert refused.exit_code == 2, refused.output


def test_a_commit_interval_needs_no_format_and_changes_no_other_term(shop: Service) -> None:
    url = str(shop.http.base_url)
    for name, sink in (("own", None), ("files", {"format": "json", "path": "/data/f"})):
        shop.post("/v1/queries", {"id": name, "sql": PAIR} | ({"sink": sink} if sink else {}))
        before = shop.get(f"/v1/queries/{name}")["sink"]
        replaced = ["query", "replace", name, PAIR, "--commit-interval", "1 min", "--yes"]
        made = CliRunner().invoke(app, [*replaced, "--url", url])
        assert made.exit_code == 0, made.output
        assert shop.get(f"/v1/queries/{name}")["sink"] == before | {"commit_interval": "1 min"}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.customer_id, count(*) AS n FROM orders o GROUP BY o.customer_id",
        "SELECT o.order_id, c.city FROM orders o LEFT JOIN customers c "
        "ON o.customer_id = c.customer_id",
    ],
)
def test_versions_are_not_gathered(shop: Service, sql: str) -> None:
    sink = {"commit_interval": "1 s"}
    problem = shop.post("/v1/queries", {"sql": sql, "sink": sink}, 422)
    assert problem["errors"][0]["field"] == "sink.commit_interval"
    assert problem["remedy"]


def test_a_run_with_another_interval_has_the_columns_of_its_sink(shop: Service) -> None:
    table = {"format": "kafka", "options": OPTIONS}
    shop.post("/v1/queries", {"id": "k", "sql": PAIR, "sink": table})
    changed = {
        "sql": PAIR.replace("c.city", "c.customer_id"),
        "sink": table | {"commit_interval": "1 s"},
    }
    problem = shop.call("PUT", "/v1/queries/k", 409, changed)
    assert problem["code"] == "sink-columns-differ"


def test_a_run_may_add_columns_to_a_table_of_a_lake(shop: Service) -> None:
    sink = {"format": "iceberg", "options": {"table": "lake.shop.pairs"}}
    made = shop.post("/v1/queries", {"id": "t", "sql": PAIR, "sink": sink})
    assert made["results_at"] == "iceberg lake.shop.pairs"
    wider = PAIR.replace("c.city", "c.city, c.customer_id")
    answer = shop.call("PUT", "/v1/queries/t", 200, {"sql": wider, "sink": sink})
    assert answer["action"] == "replaced"
    other = PAIR.replace("c.city", "c.customer_id AS city")
    problem = shop.call("PUT", "/v1/queries/t", 409, {"sql": other, "sink": sink})
    assert problem["code"] == "sink-columns-differ"


def test_a_current_table_has_the_key_of_its_view_and_one_run(shop: Service) -> None:
    sql = "SELECT o.customer_id, count(*) AS n FROM orders o GROUP BY o.customer_id"
    options = {"anabranch.table": "current", "anabranch.key": "n"}
    sink = {"format": "delta", "path": "/data/t", "options": options}
    problem = shop.post("/v1/queries", {"id": "v", "sql": sql, "sink": sink}, 422)
    assert problem["errors"][0]["field"] == "sink.options.anabranch.key"
    assert "customer_id" in problem["remedy"]
    options["anabranch.key"] = "customer_id"
    shop.post("/v1/queries", {"id": "v", "sql": sql, "sink": sink})
    problem = shop.post("/v1/queries", {"id": "w", "sql": sql, "sink": sink}, 409)
    assert problem["code"] == "sink-in-use"
    narrower = sql.replace("GROUP", "WHERE o.total > 3 GROUP")
    problem = shop.call("PUT", "/v1/queries/v", 409, {"sql": narrower, "sink": sink})
    assert problem["code"] == "sink-in-use"
    problem = shop.post("/v1/queries", {"id": "p", "sql": PAIR, "sink": sink}, 422)
    assert problem["errors"][0]["field"] == "sink.options.anabranch.key"

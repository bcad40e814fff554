"""Tests of user-defined functions over REST: registered, called by queries, changed and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.connectors.user_functions import UserFunction
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.support.worlds.service import Service, serving

MODULE = """
import os
from math import floor

def double(x):
    return x

def half(x):
    return x

copy = half
_own = half
raise RuntimeError("the service does not execute a module")
"""
CALLED = f"{PAIR} WHERE half(o.total) > 1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "prices.py").write_text(MODULE)
    (tmp_path / "deep" / "inner.py").write_text("def f(x): return x")
    (tmp_path / "broken.py").write_text("def f(x) return x")
    return tmp_path


@pytest.fixture
def programmed(settings: ServiceSettings, folder: Path) -> Iterator[Service]:
    access = replace(settings.access, functions=(str(folder),))
    with serving(settings.changed(access=access)) as running:
        running.beat()
        for stream in STREAMS:
            running.post("/v1/streams", stream)
        yield running


def add(service: Service, signature: str, status: int = 201, path: str = "", **more: Any) -> Any:
    body = {"signature": signature, "module": "prices", **more}
    return service.post(f"/v1/functions{path}", body, status)


HALF = "half(x DOUBLE) RETURNS DOUBLE"


def test_a_function_is_registered_listed_and_deleted(programmed: Service) -> None:
    made = add(programmed, " Half ( x double )  returns double ", description="x / 2")
    assert made["signature"] == HALF
    assert (made["name"], made["attribute"], made["kind"]) == ("half", "half", "arrow")
    assert (made["deterministic"], made["time_limit"], made["queries"]) == (True, "10 seconds", [])
    assert (
        add(
            programmed,
            "other(x INT, m MAP<STRING, INT>) RETURNS INT",
            attribute="copy",
            kind="row",
            time_limit="1500 ms",
        )["time_limit"]
        == "1 second 500 milliseconds"
    )
    assert add(programmed, "deeper(x INT) RETURNS INT", module="deep.inner", attribute="f")
    listed = programmed.get("/v1/functions")["items"]
    assert [one["name"] for one in listed] == ["deeper", "half", "other"]
    assert programmed.get("/v1/functions/HALF") == made
    programmed.call("DELETE", "/v1/functions/half", 204)
    assert programmed.get("/v1/functions/half", 404)["code"] == "unknown-function"


@pytest.mark.parametrize(
    ("signature", "more", "code"),
    [
        ("half(x DOUBLE)", {}, "bad-signature"),
        ("half() RETURNS DOUBLE", {}, "bad-signature"),
        ("half(x) RETURNS DOUBLE", {}, "bad-signature"),
        ("half(x INT, x INT) RETURNS DOUBLE", {}, "bad-signature"),
        ("half(x NUMBER) RETURNS DOUBLE", {}, "unknown-type"),
        ("lower(x STRING) RETURNS STRING", {"attribute": "half"}, "name-of-builtin"),
        ("count(x STRING) RETURNS STRING", {"attribute": "half"}, "name-of-builtin"),
        ("cast(x STRING) RETURNS STRING", {"attribute": "half"}, "name-of-builtin"),
        ("rand(x INT) RETURNS INT", {"attribute": "half"}, "name-of-builtin"),
        (HALF, {"module": "nowhere"}, "module-not-allowed"),
        (HALF, {"module": "broken"}, "malformed-module"),
        (HALF, {"attribute": "os"}, "unknown-attribute"),
        (HALF, {"attribute": "floor"}, "unknown-attribute"),
        (HALF, {"attribute": "_own"}, "unknown-attribute"),
        (HALF, {"time_limit": "0 s"}, "bad-time-limit"),
        (HALF, {"time_limit": "1 hour"}, "bad-time-limit"),
    ],
)
def test_what_can_not_be_called_is_refused(
    programmed: Service, signature: str, more: dict[str, Any], code: str
) -> None:
    refused = add(programmed, signature, 422, **more)
    assert refused["code"] == code
    assert refused["errors"][0]["field"]
    assert programmed.get("/v1/functions")["items"] == []


def test_without_allowed_modules_all_are_refused(shop: Service) -> None:
    refused = add(shop, HALF, 422)
    assert refused["code"] == "module-not-allowed"
    assert "--functions" in refused["remedy"]


def test_a_called_function_stays_as_it_is(programmed: Service, folder: Path) -> None:
    refused = programmed.post("/v1/queries", {"id": "q", "sql": CALLED}, 422)
    assert refused["code"] == "unknown-function"
    made = add(programmed, HALF)
    query = programmed.post("/v1/queries", {"id": "q", "sql": CALLED}, 201)
    assert f"half@{made['version']}(total)" in str(query["normalised"])
    assert programmed.get("/v1/functions/half")["queries"] == ["q"]
    assert add(programmed, HALF, 409)["code"] == "duplicate-function"
    # The same function again changes only its description.
    again = add(programmed, HALF, path="?replace=true", description="new")
    assert (again["version"], again["description"]) == (made["version"], "new")
    (folder / "prices.py").write_text(MODULE + "# changed\n")
    for refused in (
        add(programmed, HALF, 409, "?replace=true"),
        programmed.call("DELETE", "/v1/functions/half", 409),
    ):
        assert refused["code"] == "function-in-use"
        assert refused["detail"].endswith("is called by q")
    programmed.call("DELETE", "/v1/queries/q", 202)
    changed = add(programmed, HALF, path="?replace=true")
    assert changed["version"] != made["version"]
    programmed.call("DELETE", "/v1/functions/half", 204)


def test_readers_and_parts_of_a_query_call_its_functions(programmed: Service) -> None:
    made = add(programmed, HALF)
    sql = PAIR.replace("c.city", "half(o.total) AS h")
    programmed.post("/v1/queries", {"id": "base", "sql": sql}, 201)
    programmed.post("/v1/queries", {"id": "outer", "sql": "SELECT h FROM base"}, 201)
    assert programmed.get("/v1/functions/half")["queries"] == ["base", "outer"]
    record = json.loads(str(programmed.redis.hget(programmed.keys.queries, "outer")))
    assert UserFunction.loads(record["functions"]["half"]).version == made["version"]
    nested = {"sql": "SELECT half(h) AS x FROM base"}
    explained = programmed.post("/v1/queries:explain", nested, 200)
    assert f"half@{made['version']}(half@{made['version']}(" in str(explained)


def test_a_function_is_called_two_queries_below(programmed: Service) -> None:
    made = add(programmed, HALF)
    sql = PAIR.replace("c.city", "half(o.total) AS h")
    programmed.post("/v1/queries", {"id": "base", "sql": sql}, 201)
    programmed.post("/v1/queries", {"id": "middle", "sql": "SELECT h FROM base"}, 201)
    programmed.post("/v1/queries", {"id": "top", "sql": "SELECT h FROM middle"}, 201)
    nested = {"sql": "SELECT half(h) AS x FROM middle"}
    explained = programmed.post("/v1/queries:explain", nested, 200)
    assert f"half@{made['version']}(half@{made['version']}(" in str(explained)
    assert programmed.get("/v1/functions/half")["queries"] == ["base", "middle", "top"]

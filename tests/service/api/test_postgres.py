"""Tests of streams of PostgreSQL tables over REST: columns and key by the catalog, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.postgres import Server
from tests.support.surroundings.postgres import run
from tests.support.worlds.service import Service


@pytest.fixture(scope="module", autouse=True)
def shop(postgres: Server) -> None:
    run(
        postgres,
        "CREATE SCHEMA shop",
        'CREATE TABLE shop."Orders" (id int, line int, at timestamptz, price numeric(8,2),'
        " half int GENERATED ALWAYS AS (line / 2) STORED, PRIMARY KEY (id, line))",
        """INSERT INTO shop."Orders" VALUES (1, 2, '2026-01-01 00:00+00', 3.5)""",
    )


def body(server: Server, **changes: Any) -> dict[str, Any]:
    options = {"url": server.url, "table": 'shop."Orders"', **changes.pop("options", {})}
    source = {"format": "postgres", "options": options}
    return {"name": "orders", "columns": {}, "kind": "upsert", "source": source, **changes}


def test_columns_and_key_are_taken_from_the_catalog(service: Service, postgres: Server) -> None:
    made = service.post("/v1/streams", body(postgres))
    assert {c["name"]: c["type"] for c in made["columns"]} == {
        "id": "int", "line": "int", "at": "timestamp", "price": "decimal(8,2)", "op": "string",
    }  # fmt: skip
    assert (made["key"], made["changes"]["operation"]) == (["id", "line"], "op")
    assert service.post("/v1/streams", body(postgres), 200) == made
    assert made["source_status"]["behind_bytes"] is None
    changed = service.call("PATCH", "/v1/streams/orders", 200, {"on_loss": "skip"})
    assert changed["source"]["options"]["on_loss"] == "skip"


def test_a_table_is_tested_with_its_rows(service: Service, postgres: Server) -> None:
    found = service.post("/v1/streams:test", body(postgres), 200)
    assert (found["outcome"], found["invalid"]) == ("read", 0)
    assert found["rows"] == [
        {"id": 1, "line": 2, "at": "2026-01-01T00:00:00Z", "price": "3.50", "op": None}
    ]
    columns = {"id": "int", "line": "int", "price": "int"}
    wrong = service.post(
        "/v1/streams:test", body(postgres, columns=columns, key=["id", "line"]), 200
    )
    assert (wrong["outcome"], wrong["error"]["field"]) == ("failed", "columns.price")
    keyed = service.post("/v1/streams:test", body(postgres, key=["id"]), 200)
    assert keyed["error"]["code"] == "not-a-key"


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"kind": "stream", "columns": {"id": "int"}}, "kind", "postgres-without-changes"),
        ({"options": {"table": "nothing"}}, "source.options.table", "no-table"),
        ({"options": {"url": "postgresql://a@localhost:1/x"}}, "source.options.url", "no-database"),
        ({"options": {"slot": "A"}}, "source.options.slot", "bad-option"),
    ],
)  # fmt: skip
def test_tables_that_are_refused(
    service: Service, postgres: Server, changes: dict[str, Any], field: str, code: str
) -> None:
    refused = service.post("/v1/streams", body(postgres, **changes), 422)
    assert [(e["field"], e["code"]) for e in refused["errors"]] == [(field, code)]
    assert refused["remedy"]

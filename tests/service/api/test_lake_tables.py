"""Tests of streams of lake tables over REST: registration, refusals, policies, progress."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from rich.console import Console

from anabranch_client.render.streams import stream_detail
from anabranch_contract.protocol.intake import (
    InputProgress,
    SnapshotProgress,
    SourceState,
    StreamIntake,
)
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.rest.streams import StreamOut
from tests.support.worlds.service import Service


def body(**changes: Any) -> dict[str, Any]:
    options = changes.pop("options", {})
    path = changes.pop("path", "/lake/orders")
    source = {"format": "delta", "path": path, "options": options}
    return {"name": "o", "columns": {"id": "int"}, "source": source, **changes}


def test_a_stream_of_changes_has_the_operations_of_its_table(service: Service) -> None:
    made = service.post("/v1/streams", body(kind="changes"))
    assert {c["name"]: c["type"] for c in made["columns"]} == {"id": "int", "op": "string"}
    changed = service.call("PATCH", "/v1/streams/o", 200, {"on_loss": "skip"})
    assert changed["source"]["options"]["on_loss"] == "skip"
    service.post("/v1/streams", body(name="keyed", kind="upsert", key=["id"]))
    tested = service.post("/v1/streams:test", body(), 200)
    assert (tested["outcome"], tested["error"]["code"]) == ("failed", "no-table")
    source = {"format": "iceberg", "options": {"table": "lake.db.orders"}}
    tested = service.post("/v1/streams:test", body(source=source), 200)
    assert tested["outcome"] == "not tested"


def test_an_iceberg_table_is_named_by_its_catalog(service: Service) -> None:
    source = {"format": "iceberg", "options": {"table": "lake.db.orders"}}
    made = service.post("/v1/streams", body(source=source, kind="upsert", key=["id"]))
    assert {c["name"]: c["type"] for c in made["columns"]} == {"id": "int", "op": "string"}
    for changed, field in (
        ({"path": "/lake/orders"}, "source.path"),
        ({"options": {}}, "source.options.table"),
        ({"options": {"table": "orders"}}, "source.options.table"),
        ({"options": {"table": "lake.db.t", "url": "x"}}, "source.options.url"),
    ):
        refused = service.post("/v1/streams", body(name="x", source=source | changed), 422)
        assert [e["field"] for e in refused["errors"]] == [field]


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"path": "s3://bucket/orders"}, "source.path", "bad-option"),
        ({"path": None}, "source.path", "incomplete-source"),
        ({"options": {"ignoreDeletes": "true"}}, "source.options.ignoreDeletes", "unknown-option"),
        ({"options": {"start": "soon"}}, "source.options.start", "bad-option"),
        ({"kind": "changes", "changes": {"deletes": ["x"]}}, "changes", "table-operations"),
    ],
)
def test_tables_that_are_refused(
    service: Service, changes: dict[str, Any], field: str, code: str
) -> None:
    refused = service.post("/v1/streams", body(**changes), 422)
    assert [(e["field"], e["code"]) for e in refused["errors"]] == [(field, code)]
    assert refused["remedy"]


def test_the_progress_of_a_snapshot_is_shown(service: Service) -> None:
    service.post("/v1/streams", body())
    assert service.get("/v1/streams/o")["snapshot"] is None
    service.beat()
    service.source("o", SourceState.READING)
    intake = StreamIntake(70_000, 1.5, snapshot=SnapshotProgress(90_000, 30_000))
    progress = Progress("running", input=InputProgress({"o": intake}))
    assert Progress.loads(progress.dumps()) == progress
    service.progress(progress)
    found = service.get("/v1/streams/o")
    assert found["snapshot"] == {"rows": 90_000, "read": 30_000}
    console = Console(file=io.StringIO(), width=120)
    console.print(stream_detail(StreamOut.model_validate(found)))
    assert "30,000 of 90,000 rows read" in cast("io.StringIO", console.file).getvalue()
    parts = service.get("/v1/health")["components"]
    one = next(part for part in parts if part["name"] == "o")
    assert (one["state"], one["message"]) == (
        "ok", "30,000 of 90,000 rows of its snapshot are read",
    )  # fmt: skip

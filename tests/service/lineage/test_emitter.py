"""Tests of lineage events over HTTP: the events of each run, and retries that delay nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.protocol.activations import Activation, Failure
from anabranch_contract.protocol.progress import Progress
from anabranch_service.errors import SettingsError
from anabranch_service.lineage import emitter
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.support.worlds.service import Service, eventually, serving


class Collector:
    """HTTP server that receives events.

    Attributes:
        events: that it has taken. ``status``: what it answers.
        tokens: that came with them.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []
        self.status = 201
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.status < 400:
                    collector.events.append(json.loads(body))
                    collector.tokens.append(self.headers["Authorization"])
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/api/v1/lineage"

    def said(self) -> list[tuple[str, str]]:
        return [(e["eventType"], e["job"]["name"]) for e in self.events]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check for due events more often than each second."""
    monkeypatch.setattr(emitter, "PAUSE", 0.05)


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join(60)


@contextmanager
def shop(settings: ServiceSettings) -> Iterator[Service]:
    with serving(settings) as service:
        service.beat()
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        yield service


def activated(service: Service, query: str, **more: Any) -> None:
    service.activate(query, Activation(0, {}, **more))


def test_a_run_starts_with_its_activation_and_completes_with_its_end(
    settings: ServiceSettings, collector: Collector
) -> None:
    with shop(settings.changed(lineage_url=collector.url)) as service:
        service.post("/v1/queries", {"id": "pair", "sql": PAIR, "sink": {"format": "count"}})
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        service.plan(-1)
        service.progress(Progress("running", committed=1, epoch=0, epoch_starts={"0": 0}))
        activated(service, "pair")
        activated(service, "chain")
        eventually(lambda: len(collector.events) == 2, "both have started")
        assert sorted(collector.said()) == [("START", "chain"), ("START", "pair")]
        activated(service, "pair", expired_batch=3)
        activated(
            service,
            "chain",
            expired_batch=4,
            failure=Failure("overflow", "it overflows", "a + b", 3),
        )
        eventually(lambda: len(collector.events) == 4, "both have ended")
    assert sorted(collector.said()[2:]) == [("COMPLETE", "pair"), ("FAIL", "chain")]
    start, complete = (e for e in collector.events if e["job"]["name"] == "pair")
    failed = next(e for e in collector.events if e["eventType"] == "FAIL")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert failed["run"]["facets"]["errorMessage"]["message"] == "it overflows"
    assert "anabranch_" not in start["job"]["facets"]["sql"]["query"]


def test_an_event_has_schemas_and_columns(settings: ServiceSettings, collector: Collector) -> None:
    with shop(settings.changed(lineage_url=collector.url)) as service:
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        service.plan(-1)
        activated(service, "chain")
        eventually(lambda: bool(collector.events), "it has started")
    (event,) = collector.events
    place = f"anabranch://{settings.namespace}"
    assert [(d["namespace"], d["name"]) for d in event["inputs"]] == [
        (place, "customers"),
        ("file", "/data/items.parquet"),
        (place, "orders"),
    ]
    assert event["inputs"][0]["facets"]["schema"]["fields"] == [
        {"name": "customer_id", "type": "bigint"},
        {"name": "city", "type": "string"},
    ]
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == (place, "results/chain")
    assert [f["name"] for f in output["facets"]["schema"]["fields"]] == ["city", "part"]
    lineage = output["facets"]["columnLineage"]
    (part,) = lineage["fields"]["part"]["inputFields"]
    assert (part["namespace"], part["name"], part["field"]) == (
        *("file", "/data/items.parquet"),
        "part",
    )
    assert part["transformations"][0]["type"] == "DIRECT"
    keys = {(f["name"], f["field"]) for f in lineage["dataset"]}
    assert ("orders", "customer_id") in keys
    assert {f["transformations"][0]["type"] for f in lineage["dataset"]} == {"INDIRECT"}
    assert event["schemaURL"].endswith("/2-0-2/OpenLineage.json#/$defs/RunEvent")


def test_what_is_not_taken_is_sent_later_and_nothing_waits_for_it(
    settings: ServiceSettings, collector: Collector, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("hush\n")
    collector.status = 503
    given = settings.changed(lineage_url=collector.url, lineage_token_file=str(token))
    with shop(given) as service:
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.plan(-1)
        activated(service, "pair")
        failed = 'anabranch_lineage_events_total{outcome="failed"}'
        eventually(lambda: failed in service.http.get("/metrics").text, "it is refused")
        assert service.get("/v1/queries/pair")["status"] == "active"
        collector.status = 201
        # A service that ends between sending and recording leaves the event to the next one.
        eventually(lambda: service.redis.hlen(service.keys.lineage) == 1, "it is recorded as sent")
    assert collector.tokens == ["Bearer hush"]
    # The next service does not send earlier events again.
    with serving(given) as service:
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        service.plan(0)
        activated(service, "chain")
        eventually(lambda: len(collector.events) == 2, "the next one is sent")
    assert collector.said() == [("START", "pair"), ("START", "chain")]


def test_events_can_go_to_a_file(settings: ServiceSettings, tmp_path: Path) -> None:
    file = tmp_path / "lineage.jsonl"
    with shop(settings.changed(lineage_url=file.as_uri())) as service:
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.plan(-1)
        activated(service, "pair")
        eventually(file.exists, "it is written")
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["eventType"] == "START"


def test_an_address_that_means_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match="lineage_url"):
        ServiceSettings().changed(lineage_url="ftp://somewhere")

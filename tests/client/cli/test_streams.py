"""Tests of stream commands: reading a table again."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from anabranch_client.cli import streams
from anabranch_client.cli.app import app
from anabranch_client.rest.api import Client
from anabranch_contract.protocol.intake import InputProgress, SourceState
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_contract.protocol.registered import StreamProperties
from anabranch_contract.protocol.table_progress import TableProgress
from tests.support.worlds.service import Service, eventually

if TYPE_CHECKING:
    from typer.testing import Result

COLUMNS = [("code", "string"), ("name", "string")]
SOURCE = {"format": "files", "path": "/data/airlines", "options": {"type": "csv"}}


@pytest.fixture
def mode() -> Mode:
    return Mode.LIVE


@pytest.fixture(autouse=True)
def table(client: Client, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "REREAD_POLL", 0.01)
    client.create_stream("airlines", COLUMNS, source=SOURCE, kind="table", key=["code"])
    service.beat()
    service.source("airlines", SourceState.READING)
    reports(service, TableProgress(1, read_at=0.0, rows=7))


def reports(service: Service, table: TableProgress) -> None:
    service.progress(Progress("running", input=InputProgress(tables={"airlines": table})))


def reread(url: str, *arguments: str) -> Result:
    variables = {"ANABRANCH_URL": url, "COLUMNS": "160"}
    return CliRunner().invoke(app, ["stream", "reread", "airlines", *arguments], env=variables)


def test_a_table_is_read_again(url: str, client: Client) -> None:
    found = reread(url)
    assert found.exit_code == 0, found.output
    assert "; version 2 is being read" in found.stdout
    lines = [line.split() for line in found.stdout.splitlines()]
    assert ["rows", "kept", "7"] in lines
    table = client.stream("airlines").table
    assert table is not None
    assert (table.version, table.looked_up, table.rows) == (2, 1, 7)


def test_it_waits_until_the_new_rows_are_looked_up(
    url: str, client: Client, service: Service
) -> None:
    def answer() -> None:
        def is_asked() -> bool:
            record = json.loads(service.redis.hget(service.keys.streams, "airlines") or "{}")
            return bool(record.get("version") == 2)

        eventually(is_asked, "the request")
        reports(service, TableProgress(1, 2, 0.0, 7))
        reports(service, TableProgress(2, 0, 5.0, 9))

    thread = threading.Thread(target=answer)
    thread.start()
    found = reread(url, "--wait", "--json")
    thread.join()
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["table"] == {
        "version": 2,
        "looked_up": 2,
        "read_at": "1970-01-01T00:00:05Z",
        "rows": 9,
    }


def test_it_does_not_wait_for_a_source_that_can_not_be_read(url: str, service: Service) -> None:
    service.source("airlines", SourceState.FAILED, "no such folder")
    found = reread(url, "--wait")
    assert found.exit_code == 1
    assert "failed: no such folder. Queries look up the previous rows" in found.stderr


def test_a_stream_is_no_table(url: str, client: Client, service: Service) -> None:
    # Without a runtime, registrations do not wait for the first read.
    service.redis.delete(service.keys.heartbeat)
    client.create_stream("flights", COLUMNS)
    variables = {"ANABRANCH_URL": url}
    found = CliRunner().invoke(app, ["stream", "reread", "flights"], env=variables)
    assert found.exit_code == 1
    assert "is not a table" in found.stderr


@pytest.mark.parametrize("command", ["add", "set"])
def test_every_property_of_a_stream_is_an_option(command: str) -> None:
    group: Any = typer.main.get_command(streams.streams)
    options = {parameter.name: parameter for parameter in group.commands[command].params}
    for name, field in StreamProperties.model_fields.items():
        assert options[name].help == StreamProperties.meaning(name).replace("`", "'") != ""
        assert bool(options[name].secondary_opts) == (field.annotation is bool)
    assert options["latest"].multiple


def test_streams_of_changes_and_upserts_are_added(
    url: str, client: Client, service: Service
) -> None:
    # Without a runtime, registrations do not wait for the first read.
    service.redis.delete(service.keys.heartbeat)
    variables = {"ANABRANCH_URL": url, "COLUMNS": "160"}
    columns = ["--column", "id:bigint", "--column", "v:double", "--format", "redis-stream"]

    def add(name: str, *arguments: str) -> Result:
        command = ["stream", "add", name, *columns, *arguments]
        return CliRunner().invoke(app, command, env=variables)

    found = add("a", "--kind", "changes", "--operation", "kind", "--deletes", "gone")
    assert found.exit_code == 0, found.output
    assert "changes, operation in column kind" in found.stdout
    form = client.stream("a").changes
    assert form is not None
    assert (form.operation, form.deletes, form.envelope) == ("kind", ["gone"], None)
    found = add("b", "--kind", "upsert", "--key", "id", "--envelope", "debezium")
    assert found.exit_code == 0, found.output
    assert "upsert, operation in column op, from debezium envelopes" in found.stdout
    assert client.stream("b").key == ["id"]
    assert add("c", "--operation", "kind").exit_code == 1
    nested = "struct<name:string,address:struct<city:string>>"
    found = add("d", "--column", f"customer:{nested}")
    assert found.exit_code == 0, found.output
    assert {c.name: c.type for c in client.stream("d").columns}["customer"] == nested

"""Tests of ``anabranch source try`` and ``stream add --from-...`` over real folders."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_client.rest.api import Client
from anabranch_contract.connectors.schemas.protobuf import parse_schema
from tests.support.oracles.protobuf import compiled

if TYPE_CHECKING:
    from typer.testing import Result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "2026 sales-new"
    made.mkdir()
    (made / "a.csv").write_text(
        "Nr;größe;at\n1;0.5;2026-01-02 03:04:05\n2;;2026-01-02 03:05:05\n3;x;2026-01-02 03:06:05\n"
    )
    return made


def run(url: str, *arguments: str) -> Result:
    variables = {"ANABRANCH_URL": url, "COLUMNS": "160"}
    return CliRunner().invoke(app, list(arguments), env=variables)


def test_a_folder_is_tried_and_its_command_registers_it(
    url: str, client: Client, folder: Path
) -> None:
    found = run(url, "source", "try", "--from-folder", str(folder), "--rows", "2")
    assert found.exit_code == 0, found.output
    assert client.streams() == []
    text = found.stdout
    assert "2026-01-02T03:05:05Z" in text
    assert "2026-01-02T03:06:05Z" not in text.replace("… 2026-01-02T03:06:05Z", "")
    assert "at (goes back by up to 0 seconds)" in text
    assert "Nr" in text
    command = text[text.index("anabranch stream add") :]
    assert command.startswith("anabranch stream add s_2026_sales_new \\\n  --column Nr:bigint")
    words = shlex.split(command.replace("\\\n", " "))[1:]
    made = run(url, *words)
    assert made.exit_code == 0, made.output
    stream = client.stream("s_2026_sales_new")
    assert [(c.name, c.type) for c in stream.columns] == [
        ("Nr", "bigint"), ("größe", "string"), ("at", "timestamp"),
    ]  # fmt: skip
    assert (stream.event_time, stream.lateness) == ("at", "10 minutes")
    assert stream.source.options == {"type": "csv", "sep": ";"}


def test_rows_that_do_not_fit_declared_columns(url: str, folder: Path) -> None:
    given = ("--from-folder", str(folder), "--column", "größe:double")
    found = run(url, "source", "try", *given)
    assert found.exit_code == 1
    assert f"{folder}/a.csv, row 3" in found.stdout
    found = run(url, "source", "try", *given, "--json")
    document = json.loads(found.stdout)
    assert [c["type"] for c in document["registration"]["columns"]][1] == "double"


def test_a_proposal_is_registered_after_confirmation(
    url: str, client: Client, folder: Path
) -> None:
    arguments = ("stream", "add", "sales", "--from-folder", str(folder), "--lateness", "2 hours")
    found = run(url, *arguments)
    assert found.exit_code == 2
    assert "--yes" in found.stderr
    assert "--column" in found.stdout
    assert run(url, *arguments, "--test").exit_code == 0
    assert client.streams() == []
    found = run(url, *arguments, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["lateness"] == "2 hours"
    assert run(url, *arguments[:2], *arguments[3:], "--yes", "--drop-late").exit_code == 0
    stream = client.stream("s_2026_sales_new")
    assert (stream.keep_late, stream.event_time) == (False, "at")


def test_a_folder_is_proposed_with_the_topics_that_continue_it(
    url: str, client: Client, folder: Path
) -> None:
    topics = {"brokers": "localhost:9092", "topics": "t", "start": "2026-01-31T08:00:00Z"}
    then = [word for name, text in topics.items() for word in ("--then", f"{name}={text}")]
    found = run(url, "stream", "add", "sales", "--from-folder", str(folder), *then, "--yes")
    assert found.exit_code == 0, found.output
    assert "--then topics=t" in found.output
    source = client.stream("sales").source
    assert source.then is not None
    assert (source.format, source.then.format, source.then.options) == ("files", "kafka", topics)


def test_schemas_of_files(url: str, client: Client, tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message A { int64 id = 1; string größe_ = 2; }'
    (tmp_path / "a.proto").write_text(text.replace("größe_", "name"))
    (tmp_path / "a.desc").write_bytes(compiled(text.replace("größe_", "name")))
    topic = ("brokers=localhost:9092", "topics=t", "payload=protobuf")
    given = [word for option in topic for word in ("--option", option)]
    for name in ("a.proto", "a.desc"):
        stream = name.replace(".", "_")
        schema = ("--option", f"schema=@{tmp_path / name}")
        found = run(url, "stream", "add", stream, "--column", "id:bigint", "--format", "kafka",
                    *given, *schema)  # fmt: skip
        assert found.exit_code == 0, found.output
        kept = client.stream(stream).source.options["schema"]
        assert parse_schema(kept).roots == ("A",)
    missing = ("--option", f"schema=@{tmp_path / 'b.proto'}")
    found = run(url, "stream", "add", "b", "--column", "id:bigint", "--format", "kafka", *given,
                *missing)  # fmt: skip
    assert found.exit_code == 2
    assert "name a schema's file" in found.output


def test_mistakes_are_named(url: str, client: Client, tmp_path: Path) -> None:
    for arguments, code, said in (
        (("source", "try"), 2, "no source"),
        (("source", "try", "--from-folder", "x", "--from-topic", "y"), 2, "several sources"),
        (("source", "try", "--from-folder", "/"), 2, "give the stream's name"),
        (("stream", "add", "--column", "a:int"), 2, "give the stream's name"),
        (
            ("stream", "add", "--from-folder", str(tmp_path), "--yes"),
            2,
            "give --column",
        ),
        (("stream", "add", "--from-folder", f"{tmp_path}/away", "--yes"), 1, ""),
        (("source", "try", "--from-topic", "t"), 1, "a kafka source needs its brokers"),
        (("source", "try", "--from-topic", "t", "--option", "brokers=127.0.0.1:1"), 1, ""),
        (("source", "try", "--from-table", "t"), 1, "url"),
    ):
        found = run(url, *arguments)
        assert (found.exit_code, said in found.output) == (code, True), (arguments, found.output)
    assert client.streams() == []


def test_a_parquet_file_and_the_python_client(url: str, client: Client, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a b": [1, 2], "t": ["x", "y"]}), tmp_path / "r.parquet")
    found = run(url, "source", "try", "--path", str(tmp_path / "r.parquet"), "--json")
    assert found.exit_code == 0, found.output
    asked = json.loads(found.stdout)["registration"]
    assert (asked["name"], asked["source"]["rows_per_batch"]) == ("parquet", 10_000)
    source = {"format": "files", "path": str(tmp_path)}
    again = client.test_stream("r", [], source=source, propose=True)
    assert again.registration is not None
    assert again.registration["columns"] == asked["columns"]
    assert again.keys == [["a b"], ["t"]]

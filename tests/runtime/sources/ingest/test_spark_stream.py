"""Tests of attacks on Spark by stream registrations, tried with Spark itself.

The service refuses these when they are registered; a record may be older than that, so the runtime
refuses them by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from anabranch_contract.connectors.policy import AccessError, AccessPolicy
from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.files.feed import FileFeed, file_feed
from anabranch_runtime.sources.files.reading import read_file
from anabranch_runtime.sources.ingest.links import closed
from anabranch_runtime.sources.ingest.spark_stream import spark_rows
from anabranch_runtime.sources.permitted import permitted_sink, permitted_source
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.sources import understood

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _named_sources(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


ENVIRONMENT = "reflect('java.lang.System', 'getenv', 'HOME')"
HOME = os.environ.get("HOME", "")


def record(
    format: str, column: str = "a", kind: str = "string", path: Path | None = None, **options: str
) -> StreamRecord:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return StreamRecord(
        name="s",
        # Not validated, like a record that somebody has written directly to Redis.
        columns=(ColumnRecord.model_construct(name=column, type=kind),),
        source=SourceRecord(format=format, path=path and str(path), options=given),
    )


def values(
    session: SparkSession, given: StreamRecord, home: Path, access: AccessPolicy = OPEN
) -> list[object]:
    """Return all that Spark reads from the source now."""
    found: list[object] = []

    def take(frame: DataFrame, batch: int) -> None:
        for part in frame.toArrow().to_batches():
            rows = closed(evaluation.rows(part), 2, access)
            found.extend(rows.filter(pc.is_null(rows.column(1))).column(0).to_pylist())

    frame, evaluation = spark_rows(session, understood(given), access)
    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return found


@pytest.mark.parametrize(
    "given",
    [
        record("text", column__a=ENVIRONMENT),
        record("text", column__a=ENVIRONMENT.replace("reflect", "java_method")),
        record("text", column__a=ENVIRONMENT.replace("reflect", "`try_reflect`")),
        record("text", column__a="CASE WHEN true THEN " + ENVIRONMENT + " END"),
        record("text", column__a="(SELECT max(value) FROM text.`/etc/hostname`)"),
        record("text", column__a="input_file_name()"),
        record("text", column__a="value AS string), " + ENVIRONMENT + " AS b, CAST(value"),
        record("text", column__a="string(value) || current_user()"),
        # A column's type, and a schema, were inserted into a text unchanged.
        record("text", kind="string) as x, " + ENVIRONMENT + " as y, cast(value as string"),
        record("csv", schema="a string, b string generated always as (" + ENVIRONMENT + ")"),
        record("csv", schema="a int) --"),
        record("text", column="${env:HOME}", column__x="value"),
    ],
    ids=range(12),
)
def test_text_of_a_registration_never_reaches_spark(
    spark: SparkSession, tmp_path: Path, given: StreamRecord
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_text("one\n")
    source = given.source.model_copy(update={"path": str(tmp_path / "in")})
    with pytest.raises((PlannerError, SourceError)) as caught:
        spark_rows(spark, understood(given.model_copy(update={"source": source})), OPEN)
    # Refused at registration or by the runtime, not by Spark.
    assert caught.value.code != "bad-source"
    assert HOME not in str(caught.value)


@pytest.mark.slow
def test_names_and_literals_are_quoted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_text('{"a`b\'c\\"": 5}\n')
    odd = record("text", "a`b'c\"", "bigint", tmp_path / "in", payload="json")
    assert values(spark, odd, tmp_path / "one") == [5]
    literal = record("text", path=tmp_path / "in", column__a="concat('${env:HOME}', '\\\\', '''')")
    assert values(spark, literal, tmp_path / "two") == ["${env:HOME}\\'"]


def test_files_that_a_link_leads_out_to_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """A link may be created after the stream was registered, in a readable directory."""
    folder = tmp_path / "home" / "in"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("hunter2\n")
    (folder / "own file").write_text("one\n")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "inside").symlink_to(folder / "own file")
    access = AccessPolicy(paths=(str(tmp_path / "home"),))
    given = record("text", path=folder, column__a="value")
    assert values(spark, given, tmp_path / "one", access) == ["one", "one"]
    for path in ("/etc", str(tmp_path), f"file://{folder}/../..", f"{folder}/out"):
        source = given.source.model_copy(update={"path": path})
        with pytest.raises(SourceError, match="--allow-path"):
            spark_rows(spark, understood(given.model_copy(update={"source": source})), access)


def test_a_feed_of_files_does_not_follow_links_out(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "in"
    folder.mkdir(parents=True)
    (tmp_path / "secret.json").write_text('{"a": "hunter2"}\n')
    (folder / "out.json").symlink_to(tmp_path / "secret.json")
    (folder / "own.json").write_text('{"a": "one"}\n')
    access = AccessPolicy(paths=(str(tmp_path / "home"),))
    feed = file_feed(record("files", path=folder, type="json"), str(tmp_path / "state"), access)
    feed.waiting(None)
    end = feed.advance(None, 100)
    (piece,) = feed.pieces(None, end, 1)
    assert [rows.column("a").to_pylist() for rows, _ in read_file(piece)] == [["one"]]
    # The listed file is replaced by a link before it is read.
    stat = (folder / "own.json").stat()
    (folder / "own.json").rename(tmp_path / "moved.json")
    (folder / "own.json").symlink_to(tmp_path / "moved.json")
    assert (tmp_path / "moved.json").stat().st_mtime_ns == stat.st_mtime_ns
    with pytest.raises(SourceError):
        list(read_file(piece))
    (piece,) = feed.pieces(None, end, 1)
    with pytest.raises(SourceError):
        list(read_file(piece))
    # A directory that becomes a link is not listed any more.
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    folder.symlink_to(moved)
    with pytest.raises(SourceError, match="a link out of"):
        feed_again(folder, tmp_path, access).waiting(None)


def feed_again(folder: Path, home: Path, access: AccessPolicy) -> FileFeed:
    return file_feed(record("files", path=folder, type="json"), str(home / "again"), access)


@pytest.mark.parametrize(
    "sink",
    [
        SinkSpec("json", (), "{root}/link/x"),
        SinkSpec("json", (), "{root}/../x"),
        SinkSpec("csv", (("nullValue", "${ANABRANCH_SINK_PW}"),), "{root}/out"),
        SinkSpec("json", (("compression", "com.example.Codec"),), "{root}/out"),
        SinkSpec("parquet", (("parquet.crypto.factory.class", "x.Y"),), "{root}/out"),
        SinkSpec("redis-stream", (("stream", "test:queries"),)),
        SinkSpec("redis-stream", (("stream", "test:queries"), ("url", "redis://localhost/0"))),
        SinkSpec("redis-stream", (("url", "redis://evil.example/0"),)),
        SinkSpec("kafka", (("kafka.bootstrap.servers", "evil.example:1"), ("topic", "t"))),
        SinkSpec("jdbc", (("url", "jdbc:h2:mem:x"), ("dbtable", "t"))),
        SinkSpec("text.Format"),
    ],
)
def test_older_records_of_sinks_are_refused_when_written(
    tmp_path: Path, sink: SinkSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_SINK_PW", "hunter2")
    root = tmp_path / "home"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    path = sink.path and sink.path.format(root=root)
    access = AccessPolicy(paths=(str(root),))
    with pytest.raises(AccessError) as caught:
        permitted_sink(replace(sink, path=path), access, "test")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        record("redis-stream", keys="test:queries"),
        record("redis-stream", url="redis://evil.example/0"),
        record("kafka", kafka__bootstrap__servers="evil.example:1", subscribe="x"),
        record("socket", host="localhost", port="1"),
        record("csv", path=Path("/etc")),
        record("files", path=Path("/etc")),
        record("recorded", path=Path("/etc/passwd")),
    ],
    ids=range(7),
)
def test_older_records_of_sources_are_refused_when_opened(
    tmp_path: Path, given: StreamRecord
) -> None:
    with pytest.raises(AccessError):
        permitted_source(given, AccessPolicy(paths=(str(tmp_path),)), "test")

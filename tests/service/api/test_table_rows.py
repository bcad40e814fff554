"""Tests of queries' tables over REST: as Arrow streams, and by SQL that may be hostile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress, Telemetry
from anabranch_contract.rest.tables import ARROW
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service, serving

CITIES = (
    "SELECT c.city, count(*) AS n FROM customers c JOIN orders o ON o.customer_id = c.customer_id "
    "GROUP BY c.city"
)


def progress(home: Path, committed: int, **results: int) -> Progress:
    return Progress("running", committed=committed, results=results, results_home=str(home))


def read(service: Service, path: str) -> pa.Table:
    answer = service.http.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == ARROW
    return pa.ipc.open_stream(answer.content).read_all()


@pytest.fixture
def tables(shop: Service, tmp_path: Path) -> Service:
    """Two queries with results of batches 0 and 2, and versions of a view after batches 0 and 3;
    four batches are committed, and files of a fifth exist.
    """
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "cities", "sql": CITIES})
    columns = [c["name"] for c in shop.get("/v1/queries/pair")["normalised"]["output"]]
    table = shop.get("/v1/queries/pair/table")
    assert (table["kind"], table["batch"], table["ended"]) == ("results", -1, False)
    assert [c["name"] for c in table["columns"]] == columns
    (tmp_path / "pair").mkdir()
    for batch, numbers in ((0, [1, 2]), (2, [3]), (4, [9])):
        rows = pa.table({name: pa.array(numbers, pa.int64()) for name in columns})
        pq.write_table(rows, tmp_path / "pair" / f"{batch:010d}-00000.parquet")
    (tmp_path / "cities").mkdir()
    changed: list[tuple[int, list[str | None], list[int | None]]]
    changed = [(1, ["Oslo", None], [1, 2]), (4, ["Oslo", "Rome"], [None, 5])]
    for version, city, n in changed:
        how = ["upsert" if one is not None else "delete" for one in n]
        written = {
            "city": city,
            "n": n,
            "anabranch_change": how,
            "anabranch_version": [version] * 2,
        }
        pq.write_table(pa.table(written), tmp_path / "cities" / f"version-{version:010d}.parquet")
    shop.activate("pair", Activation(0, {}, results=3))
    shop.activate("cities", Activation(0, {}, results=8))
    shop.progress(progress(tmp_path, 4, pair=3, cities=8))
    return shop


def test_variants_are_texts(shop: Service, tmp_path: Path) -> None:
    shop.post("/v1/streams", {"name": "events", "columns": {"k": "bigint", "text": "string"}})
    sql = (
        "SELECT parse_json(e.text) AS v, o.order_id FROM events e JOIN orders o ON e.k = o.order_id"
    )
    shop.post("/v1/queries", {"id": "seen", "sql": sql})
    (tmp_path / "seen").mkdir()
    rows = pa.table({"v": ['{"a":1}', None], "order_id": [1, 2]})
    pq.write_table(rows, tmp_path / "seen" / f"{0:010d}-00000.parquet")
    shop.activate("seen", Activation(0, {}, results=2))
    assert read(shop, "/v1/queries/seen/table/rows").num_rows == 0
    shop.progress(progress(tmp_path, 1, seen=2))
    found = read(shop, "/v1/queries/seen/table/rows")
    assert found.to_pydict() == {"v": ['{"a":1}', None], "order_id": [1, 2]}
    sql = "SELECT v->>'a' AS a FROM seen ORDER BY order_id"
    assert shop.post("/v1/queries:sql", {"sql": sql}, 200)["rows"] == [["1"], [None]]


def test_intervals_have_their_types(shop: Service, tmp_path: Path) -> None:
    """A difference of times is a duration with its type, as in the result files."""
    statement = (
        "SELECT customer_id AS k, CAST(city AS TIMESTAMP) - TIMESTAMP '2024-01-01' AS since, "
        "INTERVAL '3' MONTH AS term FROM customers"
    )
    shop.post("/v1/queries", {"id": "ages", "sql": statement})
    columns = shop.get("/v1/queries/ages/table")["columns"]
    types = {column["name"]: column["type"] for column in columns}
    schema = pa.schema(
        [
            pa.field("k", pa.int64()),
            pa.field(
                "since", pa.duration("us"), metadata={b"anabranch.type": types["since"].encode()}
            ),
            pa.field("term", pa.int32(), metadata={b"anabranch.type": types["term"].encode()}),
        ]
    )
    (tmp_path / "ages").mkdir()
    written = pa.table([[1, 2], pa.array([86_400_000_000, None], pa.duration("us")),
                        pa.array([3, 3], pa.int32())], schema=schema)  # fmt: skip
    pq.write_table(written, tmp_path / "ages" / "0000000000-00000.parquet")
    shop.activate("ages", Activation(0, {}, results=2))
    shop.progress(progress(tmp_path, 1, ages=2))
    found = read(shop, "/v1/queries/ages/table/rows")
    assert found.schema.equals(schema.with_metadata(found.schema.metadata), check_metadata=True)
    assert found.sort_by("k").to_pylist() == written.to_pylist()
    none = read(shop, "/v1/queries/ages/table/rows?limit=0")
    assert none.schema.equals(found.schema, check_metadata=True)
    answer = shop.post("/v1/queries:sql", {"sql": "SELECT since FROM ages ORDER BY k LIMIT 1"}, 200)
    assert answer["rows"] == [[86_400_000_000]]


def test_rows_as_of_a_batch(tables: Service) -> None:
    first = tables.get("/v1/queries/pair/table")["columns"][0]["name"]
    whole = read(tables, "/v1/queries/pair/table/rows")
    assert sorted(whole[first].to_pylist()) == [1, 2, 3]
    assert whole.schema.metadata == {b"anabranch_batch": b"3", b"anabranch_run": b"pair"}
    for query, expected in (
        ("batch=1", [1, 2]),
        ("batch=-1", []),
        ("after=0", [3]),
        ("after=0&batch=1", []),
        ("limit=0", []),
        ("changes=true&batch=2", [1, 2, 3]),
    ):
        found = read(tables, f"/v1/queries/pair/table/rows?{query}")
        assert sorted(found[first].to_pylist()) == expected, query
        assert found.schema.equals(whole.schema)
    refused = tables.get("/v1/queries/pair/table/rows?batch=4", 409)
    assert refused["code"] == "batch-not-there"
    assert "newest batch with all results is 3" in refused["detail"]
    assert tables.get("/v1/queries/nobody/table/rows", 404)["code"] == "unknown-query"
    assert tables.get("/v1/queries/nobody/table", 404)["code"] == "unknown-query"


def test_rows_of_a_view(tables: Service, tmp_path: Path) -> None:
    described = tables.get("/v1/queries/cities/table")
    assert (described["kind"], described["batch"]) == ("view", 3)
    assert [c["name"] for c in described["changes"][-2:]] == [
        "anabranch_change",
        "anabranch_version",
    ]
    path = "/v1/queries/cities/table/rows"
    rows = read(tables, path).sort_by("n").to_pylist()
    assert rows == [{"city": None, "n": 2}, {"city": "Rome", "n": 5}]
    rows = read(tables, f"{path}?batch=2").sort_by("n").to_pylist()
    assert rows == [{"city": "Oslo", "n": 1}, {"city": None, "n": 2}]
    rows = read(tables, f"{path}?after=0").to_pylist()
    assert [(row["city"], row["anabranch_change"]) for row in rows] == [
        ("Oslo", "delete"),
        ("Rome", "upsert"),
    ]
    # A view that lags is read as of its latest batch.
    late = Telemetry(view_lag={"cities": 2})
    tables.progress(replace(progress(tmp_path, 4, pair=3, cities=8), telemetry=late))
    assert tables.get("/v1/queries/cities/table")["batch"] == 1
    answer = tables.post("/v1/queries:sql", {"sql": "SELECT count(*) FROM pair, cities"}, 200)
    assert (answer["batch"], answer["rows"]) == (1, [[4]])
    assert tables.get(f"{path}?batch=2", 409)["code"] == "batch-not-there"


def test_sql_over_tables_of_one_batch(tables: Service) -> None:
    first = tables.get("/v1/queries/pair/table")["columns"][0]["name"]
    sql = (
        f'SELECT c.city, sum(p."{first}") AS s FROM cities c, pair p GROUP BY ALL ORDER BY s, city'
    )
    assert tables.post("/v1/queries:sql", {"sql": sql}, 200) == {
        "batch": 3,
        "columns": ["city", "s"],
        "rows": [["Rome", "6"], [None, "6"]],
        "truncated": False,
    }
    old = tables.post("/v1/queries:sql", {"sql": sql, "batch": 1, "limit": 1}, 200)
    assert (old["batch"], old["rows"], old["truncated"]) == (1, [["Oslo", "3"]], True)
    answer = tables.http.post("/v1/queries:sql", json={"sql": sql}, headers={"Accept": ARROW})
    found = pa.ipc.open_stream(answer.content).read_all()
    assert found.schema.metadata == {b"anabranch_batch": b"3"}
    assert found["city"].to_pylist() == ["Rome", None]
    values = (
        "SELECT TIMESTAMPTZ '2024-01-01 00:00:00+00', DATE '2024-01-01', 1.50::DECIMAL(9, 2), "
        "'\\x01'::BLOB, 'inf'::DOUBLE, INTERVAL '2' DAY, {'a': [1, NULL]}, TIME '10:00'"
    )
    assert tables.post("/v1/queries:sql", {"sql": values}, 200)["rows"] == [
        [
            *("2024-01-01T00:00:00Z", "2024-01-01", "1.50", "AQ==", "inf"),
            *("INTERVAL '2 00:00:00' DAY TO SECOND", {"a": [1, None]}, "10:00:00"),
        ]
    ]
    spans = "SELECT INTERVAL '-14' MONTH, INTERVAL 0 DAY, [INTERVAL '1 month 2 hours']"
    assert tables.post("/v1/queries:sql", {"sql": spans}, 200)["rows"] == [
        [
            "INTERVAL '-1-2' YEAR TO MONTH",
            "INTERVAL '0 00:00:00' DAY TO SECOND",
            ["INTERVAL '0-1' YEAR TO MONTH + INTERVAL '0 02:00:00' DAY TO SECOND"],
        ]
    ]
    described = tables.post("/v1/queries:sql", {"sql": "DESCRIBE pair"}, 200)
    columns = tables.get("/v1/queries/pair/table")["columns"]
    assert [row[0] for row in described["rows"]] == [column["name"] for column in columns]
    assert tables.post("/v1/queries:sql", {"sql": "SUMMARIZE pair"}, 200)["columns"][2] == "min"
    unknown = tables.post("/v1/queries:sql", {"sql": "SELECT * FROM nobody"}, 404)
    assert unknown["code"] == "unknown-query"
    near = tables.post("/v1/queries:sql", {"sql": "FROM citys"}, 404)
    assert near["remedy"].startswith("did you mean 'cities'?")


def test_results_that_the_service_can_not_read(tables: Service, tmp_path: Path) -> None:
    shown = {"id": "shown", "sql": PAIR, "sink": {"format": "count"}}
    tables.post("/v1/queries", shown)
    assert tables.get("/v1/queries/shown/table", 409)["code"] == "results-elsewhere"
    refused = tables.post("/v1/queries:sql", {"sql": "FROM shown"}, 409)
    assert refused["code"] == "results-elsewhere"
    tables.progress(progress(tmp_path / "mounted-elsewhere", 4, pair=3))
    assert tables.get("/v1/queries/pair/table", 409)["code"] == "results-not-here"


def test_gathered_results_are_there_with_their_group(tables: Service, tmp_path: Path) -> None:
    sink = {"format": "parquet", "commit_interval": "1 hour"}
    tables.post("/v1/queries", {"id": "slow", "sql": PAIR, "sink": sink})
    tables.activate("slow", Activation(0, {}, results=4))
    files = [(tmp_path / "pair" / f"{n:010d}-00000.parquet") for n in (0, 2)]
    (tmp_path / "slow").mkdir()
    for file in files:
        (tmp_path / "slow" / file.name).write_bytes(file.read_bytes())
    tables.progress(progress(tmp_path, 4, slow=4, pair=3))
    assert tables.get("/v1/queries/slow/table")["batch"] == 2
    tables.progress(progress(tmp_path, 4, slow=3, pair=3))
    assert tables.get("/v1/queries/slow/table")["batch"] == 3


@pytest.mark.parametrize(
    "sql", ["COPY pair TO '{home}/x'", "WITH x AS (FROM read_text('/etc/passwd')) FROM x"]
)
def test_statements_that_are_refused(hostile: Service, tmp_path: Path, sql: str) -> None:
    body = {"sql": sql.format(home=tmp_path)}
    answer = hostile.post("/v1/queries:sql", body, 422)
    assert answer["code"] == "sql-refused"
    assert answer["errors"][0]["field"] == "sql"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [
        ("SELECT * FROM '/etc/passwd'", 404, "unknown-query"),
        ("SELECT getenv('PATH')", 422, "bad-sql"),
        ("SELECT list(a.range) FROM range(99999999) a", 422, "too-large"),
        ("SELECT count(*) FROM range(999999) a, range(999999) b", 422, "sql-too-slow"),
    ],
)
def test_statements_that_fail(hostile: Service, sql: str, status: int, code: str) -> None:
    answer = hostile.post("/v1/queries:sql", {"sql": sql, "limit": 1_000_000}, status)
    assert answer["code"] == code
    # The next statement is not affected.
    assert hostile.post("/v1/queries:sql", {"sql": "SELECT 1"}, 200)["rows"] == [[1]]


def test_settings_that_a_statement_reads_name_no_path(hostile: Service) -> None:
    with duckdb.connect() as one:
        rows = one.execute("SELECT name FROM duckdb_settings() WHERE name LIKE '%director%'")
        names = [name for (name,) in rows.fetchall()]
    assert {"home_directory", "secret_directory", "temp_directory"} <= set(names)
    read = ", ".join(f"current_setting('{name}')::VARCHAR" for name in names)
    ((values,),) = hostile.post("/v1/queries:sql", {"sql": f"SELECT [{read}]"}, 200)["rows"]
    found = dict(zip(names, values, strict=True))
    assert [name for name, value in found.items() if value and value[0] in "/~"] == []


@pytest.fixture(scope="module")
def hostile(redis: str) -> Iterator[Service]:
    settings = ServiceSettings().changed(
        redis_url=redis, namespace="hostile", sql_seconds=3.0, sql_memory=96 << 20
    )
    with serving(settings) as running:
        yield running


def test_tables_that_too_many_wait_for(hostile: Service, monkeypatch: Any) -> None:
    monkeypatch.setattr("anabranch_service.tables.reader.WAITING", 0)
    refused = hostile.post("/v1/queries:sql", {"sql": "SELECT 1"}, 503)
    assert refused["code"] == "too-many-tables"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused = hostile.post("/v1/queries:sql", {"sql": "SELECT 1"}, 409)
    assert refused["code"] == "tables-not-installed"

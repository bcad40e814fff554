"""Tests of Arrow Flight SQL, read by ADBC's driver: tables, statements, refusals, and one batch for
all tables.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi

from anabranch_client.processes.children import free_port
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_service.app import serve_flights
from anabranch_service.errors import SettingsError
from anabranch_service.settings import Auth, ServiceSettings
from tests.service.conftest import PAIR
from tests.support.surroundings.certificates import authority, certificate
from tests.support.worlds.service import Service, serving

SUMS = (
    "SELECT o.customer_id, count(*) AS n FROM orders o JOIN customers c "
    "ON o.customer_id = c.customer_id GROUP BY o.customer_id"
)
REDIS = {"format": "redis-stream"}
Row = tuple[Any, ...]


@dataclass
class World:
    """A service with two queries, whose result files the test writes as the runtime does."""

    service: Service
    results: Path
    uri: str

    def connect(self, **options: str) -> dbapi.Connection:
        """Return a client connection."""
        return dbapi.connect(self.uri, db_kwargs=options, autocommit=True)

    def commit(self, batch: int, lag: int = 0) -> None:
        """Commit a batch whose results are one more pair, of customer 1, and the count of pairs."""
        pairs = {"order_id": pa.array([batch], pa.int64()), "city": [f"city {batch}"]}
        self._write(f"pairs/{batch:09d}-0000.parquet", pa.table(pairs))
        if not lag:
            self._write(
                f"sums/version-{batch + 1:09d}.parquet",
                pa.table(
                    {
                        "customer_id": pa.array([1], pa.int64()),
                        "n": pa.array([batch + 1], pa.int64()),
                        "anabranch_version": pa.array([batch + 1], pa.int64()),
                        "anabranch_change": ["upsert"],
                    }
                ),
            )
        telemetry = replace(Progress("running").telemetry, view_lag={"sums": lag})
        self.service.progress(
            Progress(
                "running",
                committed=batch + 1,
                results={"pairs": batch + 1},
                results_home=str(self.results),
                telemetry=telemetry,
            )
        )

    def _write(self, name: str, rows: pa.Table) -> None:
        path = self.results / name
        path.parent.mkdir(exist_ok=True)
        draft = path.with_suffix(".part")
        pq.write_table(rows, draft)
        draft.rename(path)


@contextmanager
def world(settings: ServiceSettings, results: Path, **options: Any) -> Iterator[World]:
    port = free_port()
    changed = settings.changed(mode=Mode.LIVE, flight_port=port, **options)
    with serving(changed) as service:
        columns = {"order_id": "bigint", "customer_id": "bigint", "city": "string"}
        headers = {"Authorization": f"Bearer {_token(changed)}"} if "auth" in options else {}
        service.http.headers.update(headers)
        for name in ("orders", "customers"):
            service.post("/v1/streams", {"name": name, "columns": columns, "source": REDIS})
        # Only now: with a runtime, the service would have waited until it has tried the sources.
        service.beat()
        for name, sql in (("pairs", PAIR), ("sums", SUMS)):
            service.post("/v1/queries", {"name": name, "sql": sql})
            service.activate(name, Activation(0, {}))
        service.post("/v1/queries", {"name": "elsewhere", "sql": PAIR, "sink": {"format": "count"}})
        yield World(service, results, f"grpc://127.0.0.1:{port}")


def _token(settings: ServiceSettings) -> str:
    return Path(settings.admin_token_file).read_text().strip()


@pytest.fixture
def running(settings: ServiceSettings, tmp_path: Path) -> Iterator[World]:
    with world(settings, tmp_path) as found:
        for batch in range(3):
            found.commit(batch)
        yield found


def rows(connection: dbapi.Connection, sql: str) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def test_statements_read_tables_of_queries(running: World) -> None:
    with running.connect() as connection:
        found = rows(connection, "SELECT order_id, city FROM pairs ORDER BY order_id")
        assert found == [(0, "city 0"), (1, "city 1"), (2, "city 2")]
        assert rows(connection, "FROM sums") == [(1, 3)]
        both = 'FROM anabranch.queries.pairs p JOIN "queries".sums s ON s.n > p.order_id'
        assert rows(connection, f"SELECT count(*) {both}") == [(3,)]
        assert rows(connection, "SELECT 1 AS one") == [(1,)]
        with connection.cursor() as cursor:
            cursor.execute("SELECT order_id, city FROM pairs WHERE order_id > 0")
            table = cursor.fetch_arrow_table()
        assert table.schema.types == [pa.int64(), pa.string()]
        assert table.num_rows == 2


def test_many_rows_come_in_batches(running: World) -> None:
    with running.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT i FROM range(100000) r(i)")
        reader = cursor.fetch_record_batch()
        sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 100_000
    assert len(sizes) > 5


def test_tables_and_their_columns_are_listed(running: World) -> None:
    with running.connect() as connection:
        info = connection.adbc_get_info()
        assert info["vendor_name"] == "anabranch"
        assert connection.adbc_get_table_types() == ["TABLE"]
        (catalog,) = connection.adbc_get_objects().read_all().to_pylist()
        assert catalog["catalog_name"] == "anabranch"
        (schema,) = catalog["catalog_db_schemas"]
        assert schema["db_schema_name"] == "queries"
        tables = {one["table_name"]: one for one in schema["db_schema_tables"]}
        assert sorted(tables) == ["pairs", "sums"]
        columns = [column["column_name"] for column in tables["sums"]["table_columns"]]
        assert columns == ["customer_id", "n"]
        found = connection.adbc_get_table_schema("pairs")
        assert found == pa.schema([("order_id", pa.int64()), ("city", pa.string())])
        some = connection.adbc_get_objects(table_name_filter="s_m%").read_all().to_pylist()
        ((one,),) = [s["db_schema_tables"] for s in some[0]["catalog_db_schemas"]]
        assert one["table_name"] == "sums"


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT nothing FROM pairs", "bad-sql (sql): "),
        ("SELEC 1", "bad-sql (sql): "),
        ("DROP TABLE pairs", "sql-refused (sql): only SELECT"),
        ("FROM absent", "unknown-query (name): there is no query 'absent'"),
        ("FROM pair", "did you mean 'pairs'?"),
        ("SHOW TABLES", "DESCRIBE has the columns of a query"),
        ("FROM elsewhere", "results-elsewhere (id): "),
        ("FROM other.pairs", "sql-refused (sql): 'pairs' has another schema"),
        ("FROM read_csv('/etc/passwd')", "sql-refused (sql): the table function read_csv"),
    ],
)
def test_a_refusal_names_place_and_remedy(running: World, sql: str, text: str) -> None:
    with running.connect() as connection, pytest.raises(adbc_driver_manager.Error) as caught:
        rows(connection, sql)
    assert text in str(caught.value)
    assert "; " in str(caught.value)


def test_the_columns_of_a_table_are_described(running: World) -> None:
    with running.connect() as connection:
        found = rows(connection, "SELECT column_name, column_type FROM (DESCRIBE pairs)")
        assert found == [("order_id", "BIGINT"), ("city", "VARCHAR")]
        assert [row[0] for row in rows(connection, "DESCRIBE pairs")] == ["order_id", "city"]


def test_what_is_not_a_select_has_no_command(running: World) -> None:
    with (
        running.connect() as connection,
        connection.cursor() as cursor,
        pytest.raises(adbc_driver_manager.Error),
    ):
        cursor.adbc_ingest("t", pa.table({"a": [1]}))


def test_all_tables_of_a_statement_are_as_of_one_batch(running: World) -> None:
    # The view lags behind: all rows are read as of the batch that both queries have.
    running.commit(3, lag=2)
    with running.connect() as connection:
        assert rows(connection, "SELECT count(*) FROM pairs") == [(4,)]
        both = "SELECT (SELECT count(*) FROM pairs), (SELECT max(n) FROM sums)"
        assert rows(connection, both) == [(2, 2)]


def test_two_readers_at_once_see_equal_counts_while_batches_come(running: World) -> None:
    both = "SELECT (SELECT count(*) FROM pairs), (SELECT max(n) FROM sums)"
    found: list[list[Row]] = [[], []]

    def read(mine: list[Row]) -> None:
        with running.connect() as connection:
            for _ in range(4):
                mine += rows(connection, both)

    threads = [threading.Thread(target=read, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    batch = 3
    while any(thread.is_alive() for thread in threads):
        running.commit(batch)
        batch += 1
        threads[0].join(0.2)
    for mine in found:
        assert len(mine) == 4
        assert all(pairs == sums for pairs, sums in mine)
        assert mine == sorted(mine)


def test_tokens_and_roles_are_those_of_rest(settings: ServiceSettings, tmp_path: Path) -> None:
    token_file = str(tmp_path / "admin.token")
    (tmp_path / "results").mkdir()
    with world(
        settings, tmp_path / "results", auth=Auth.REQUIRED, admin_token_file=token_file
    ) as found:
        found.commit(0)
        token = found.service.post("/v1/tokens", {"name": "reader", "role": "viewer"})["token"]
        bearer = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}
        basic = {"username": "token", "password": token}
        for options in (bearer, basic):
            with found.connect(**options) as connection:
                assert rows(connection, "SELECT count(*) FROM pairs") == [(1,)]
        wrong = {DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer wrong"}
        for options, code in (({}, "no-token"), (wrong, "bad-token")):
            with (
                pytest.raises(adbc_driver_manager.Error, match=code),
                found.connect(**options) as connection,
            ):
                rows(connection, "SELECT 1")
        refused = found.service.get("/v1/audit?kind=refusal")["items"]
        assert any(one["route"] == "flight-sql" for one in refused)


def test_rows_that_end_early_are_an_error(running: World) -> None:
    late = "SELECT CASE WHEN i = 9000000 THEN error(i::VARCHAR) ELSE i END FROM range(9999999) r(i)"
    with running.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute(late)
            # Millions of rows as Python objects would take most of the time.
            with pytest.raises((adbc_driver_manager.Error, OSError), match="reading-failed"):
                cursor.fetch_arrow_table()
        at_first = late.replace("9000000", "0")
        with pytest.raises(adbc_driver_manager.Error, match=r"bad-sql \(sql\)"):
            rows(connection, at_first)
        assert rows(connection, "SELECT 1 AS a, 2 AS a") == [(1, 2)]


def test_a_port_in_use_is_refused(running: World) -> None:
    port = running.service.settings.tables.flight_port
    taken = replace(running.service.settings, namespace="another", port=0)
    assert taken.tables.flight_port == port
    context: Any = type("Context", (), {"settings": taken})()
    with pytest.raises(SettingsError, match=f"port {port}"):
        serve_flights(context, asyncio.new_event_loop())


def test_a_cancelled_statement_frees_its_process(running: World) -> None:
    endless = "SELECT count(*) FROM range(100000000000) a(i), range(1000) b(j)"
    with running.connect() as connection:
        for _ in range(3):
            with connection.cursor() as cursor:
                cursor.execute(endless)
                reader = threading.Timer(1.0, cursor.adbc_cancel)
                reader.start()
                with pytest.raises(adbc_driver_manager.Error):
                    cursor.fetchall()
                reader.join()
        # Two statements at the same time would occupy all reading processes.
        assert rows(connection, "SELECT count(*) FROM pairs") == [(3,)]


def test_calls_are_encrypted_with_the_certificate_of_rest(
    settings: ServiceSettings, tmp_path: Path
) -> None:
    signed_by = authority(tmp_path)
    chain, port = certificate(signed_by, "service"), free_port()
    key = str(chain.with_suffix(".key"))
    with serving(settings.changed(flight_port=port, tls_cert=str(chain), tls_key=key)):
        options = {DatabaseOptions.TLS_ROOT_CERTS.value: signed_by.read_text()}
        uri = f"grpc+tls://127.0.0.1:{port}"
        with dbapi.connect(uri, db_kwargs=options, autocommit=True) as connection:
            assert rows(connection, "SELECT 1") == [(1,)]

"""Tests of PostgreSQL tables as sources, on a real server: copies, changes, and named faults."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from anabranch_runtime.sources.ingest import landing
from anabranch_runtime.sources.postgres import following
from scripts.postgres import Server
from tests.runtime.sources.postgres.followed import Followed, table_record, wait
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.postgres import rows, run, session

Follow = Callable[..., Followed]
_NUMBERS = count()
VALUES = {"id": "bigint", "v": "int"}


@pytest.fixture
def follow(postgres: Server, tmp_path: Path) -> Iterator[Follow]:
    found = list[Followed]()

    def make(table: str, columns: dict[str, str] | None = None, *key: Any, **options: str) -> Any:
        record = table_record(postgres, table, columns or VALUES, *key, **options)
        record = record.model_copy(update={"registration": f"{table} {len(found)}"})
        found.append(Followed(record, tmp_path / f"{len(found)}"))
        return found[-1]

    yield make
    for one in found:
        one.stop()
        one.source.drop()


@pytest.fixture
def table(postgres: Server) -> Iterator[str]:
    """A table (id, v) with a primary key."""
    name = f"t{next(_NUMBERS)}"
    run(postgres, f"CREATE TABLE {name} (id bigint PRIMARY KEY, v int)")
    yield name
    run(postgres, f"DROP TABLE IF EXISTS {name}")


def test_rows_of_the_table_and_its_changes_arrive(
    postgres: Server, table: str, follow: Follow
) -> None:
    run(postgres, f"INSERT INTO {table} SELECT i, i FROM generate_series(1, 1000) i")
    stream = follow(table)
    assert stream.read() == stream.expected(postgres)
    run(
        postgres,
        f"INSERT INTO {table} VALUES (2000, NULL)",
        f"UPDATE {table} SET v = v + 1 WHERE id < 10",
        f"UPDATE {table} SET id = id + 5000 WHERE id BETWEEN 100 AND 120",
        f"DELETE FROM {table} WHERE id BETWEEN 500 AND 600",
    )
    assert stream.read() == stream.expected(postgres)
    stream.stop()
    run(postgres, f"UPDATE {table} SET v = 0 WHERE id = 7", f"DELETE FROM {table} WHERE id = 8")
    stream.start()
    assert stream.read() == stream.expected(postgres)


def test_an_empty_table_and_its_first_rows_are_read(
    postgres: Server, table: str, follow: Follow
) -> None:
    stream = follow(table)
    assert stream.read() == []
    run(postgres, f"INSERT INTO {table} VALUES (1, 1)")
    assert stream.read() == [(1, 1)]


TYPES: dict[str, tuple[str, list[str], list[Any]]] = {
    "bool": ("boolean", ["true", "false"], [True, False]),
    "smallint": ("int", ["-7"], [-7]),
    "int": ("int", ["2147483647"], [2**31 - 1]),
    "bigint": ("bigint", ["-9223372036854775808"], [-(2**63)]),
    "real": ("float", ["1.5", "'NaN'"], [1.5, "NaN"]),
    "double precision": ("double", ["0.1", "'-Infinity'"], [0.1, float("-inf")]),
    "numeric(12,2)": ("decimal(14,2)", ["-12.30"], [Decimal("-12.30")]),
    "text": ("string", ["''", "E'a\"b\\n,é'"], ["", 'a"b\n,é']),
    "varchar(5)": ("string", ["'x'"], ["x"]),
    "date": ("date", ["'2026-02-03'"], [date(2026, 2, 3)]),
    "timestamp": ("timestamp_ntz", ["'2026-02-03 04:05:06.7'"],
                  [datetime(2026, 2, 3, 4, 5, 6, 700_000)]),  # noqa: DTZ001
    "timestamptz": ("timestamp", ["'2026-02-03 04:05:06+02'"],
                    [datetime(2026, 2, 3, 2, 5, 6, tzinfo=UTC)]),
    "bytea": ("binary", ["'\\x00ff'", "''"], [b"\x00\xff", b""]),
    "uuid": ("string", ["'12345678-1234-1234-1234-123456789abc'"],
             ["12345678-1234-1234-1234-123456789abc"]),
    "jsonb": ("string", ["'{\"a\": 1}'"], ['{"a": 1}']),
    "int[]": ("string", ["'{1,NULL}'"], ["{1,NULL}"]),
    "interval": ("string", ["'1 day 2:00'"], ["P1DT2H"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", TYPES)
def test_values_of_all_types_are_the_same_in_copies_and_changes(
    postgres: Server, follow: Follow, kind: str
) -> None:
    declared, texts, expected = TYPES[kind]
    wanted = [None, *expected]
    name = f"types{next(_NUMBERS)}"
    run(
        postgres,
        f"CREATE TABLE {name} (id int PRIMARY KEY, v {kind})",
        f"ALTER TABLE {name} REPLICA IDENTITY FULL",
        f"INSERT INTO {name} VALUES (0, NULL)",
        *(f"INSERT INTO {name} VALUES ({i}, {text})" for i, text in enumerate(texts, 1)),
    )
    stream = follow(name, {"id": "int", "v": declared})
    assert _of(stream.read()) == wanted
    run(postgres, f"UPDATE {name} SET id = id + 10")
    assert _of(stream.read()) == wanted
    assert not stream.invalid


def _of(found: list[tuple[Any, ...]]) -> list[Any]:
    """Return the values of rows by id; NaN as text."""
    return [value if value == value else "NaN" for _, value in sorted(found)]


def test_values_that_do_not_fit_are_invalid_by_themselves(
    postgres: Server, table: str, follow: Follow
) -> None:
    run(
        postgres,
        f"ALTER TABLE {table} ADD at date",
        f"INSERT INTO {table} VALUES (1, 1, 'infinity')",
    )
    stream = follow(table, {**VALUES, "at": "date"})
    run(postgres, f"INSERT INTO {table} VALUES (2, 2, '2026-01-01'), (3, 3, '-infinity')")
    assert stream.read() == [(2, 2, date(2026, 1, 1))]
    assert ['"infinity"' in text for text in stream.invalid[:1]] == [True]
    assert "-infinity" in stream.invalid[-1]


def test_a_table_without_a_key_is_followed_by_its_whole_rows(
    postgres: Server, table: str, follow: Follow
) -> None:
    run(
        postgres,
        f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey",
        f"ALTER TABLE {table} ALTER id DROP NOT NULL",
        f"ALTER TABLE {table} REPLICA IDENTITY FULL",
        f"INSERT INTO {table} VALUES (1, 1), (1, 1), (NULL, 2)",
    )
    stream = follow(table, VALUES, ())
    assert stream.read() == stream.expected(postgres)
    run(
        postgres,
        f"INSERT INTO {table} VALUES (1, 1)",
        f"DELETE FROM {table} WHERE ctid = (SELECT min(ctid) FROM {table} WHERE id = 1)",
        f"UPDATE {table} SET v = 9 WHERE id IS NULL",
    )
    assert stream.read() == stream.expected(postgres)


def test_large_values_that_updates_leave_are_kept(
    postgres: Server, table: str, follow: Follow
) -> None:
    run(
        postgres,
        f"ALTER TABLE {table} ADD big text",
        f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL",
    )
    columns = {**VALUES, "big": "string"}
    refused = follow(table, columns)
    assert "big" in str(refused.error("incomplete-changes"))
    run(
        postgres,
        f"ALTER TABLE {table} REPLICA IDENTITY FULL",
        f"INSERT INTO {table} SELECT i, i, repeat(i::text, 20000) FROM generate_series(1, 5) i",
    )
    stream = follow(table, columns)
    stream.read()
    run(
        postgres,
        f"UPDATE {table} SET v = 7 WHERE id = 1",
        f"UPDATE {table} SET id = 20 WHERE id = 2",
    )
    assert stream.read() == stream.expected(postgres)


class Writer:
    """Random transactions over two tables that keep the sum of all values constant."""

    def __init__(self, server: Server, tables: list[str], seed: int) -> None:
        self.server, self.tables, self.chance = server, tables, random.Random(seed)
        self.thread: threading.Thread | None = None
        self.stopped = threading.Event()

    def transaction(self, cursor: Any) -> None:
        """Execute some statements; most transactions commit."""
        chance = self.chance
        cursor.execute("BEGIN")
        for _ in range(chance.choice((1, 1, 2, 5))):
            name, moved = chance.choice(self.tables), chance.randrange(1000)
            first, among = chance.randrange(60), chance.choice((1, 3, 30))
            where = f"WHERE id >= {first} AND id < {first + among}"
            kind = chance.randrange(5)
            if kind == 0:
                cursor.execute(
                    f"INSERT INTO {name} SELECT i, i % 7 FROM generate_series({first},"
                    f" {first + among}) i ON CONFLICT (id) DO UPDATE SET v = {name}.v + 1"
                )
            elif kind == 1:
                cursor.execute(f"UPDATE {name} SET v = v + {chance.randrange(3)} {where}")
            elif kind == 2:
                cursor.execute(f"DELETE FROM {name} {where}")
            elif kind == 3:
                cursor.execute(
                    f"UPDATE {name} SET id = {moved} WHERE id = {first}"
                    f" AND NOT EXISTS (SELECT 1 FROM {name} WHERE id = {moved})"
                )
            else:
                cursor.execute(f"SAVEPOINT a; UPDATE {name} SET v = -1; ROLLBACK TO a")
        cursor.execute("COMMIT" if chance.random() < 0.9 else "ROLLBACK")

    def run(self) -> None:
        """Write until stopped, through restarts of the server."""
        while not self.stopped.is_set():
            try:
                with session(self.server) as cursor:
                    while not self.stopped.is_set():
                        self.transaction(cursor)
                        time.sleep(self.chance.random() * 0.004)
            except psycopg2.Error:
                time.sleep(0.05)

    def start(self) -> None:
        """Start writing in a thread."""
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self.stopped.set()
        if self.thread is not None:
            self.thread.join()


@pytest.mark.parametrize("seed", mostly_slow(range(8)))
def test_random_transactions_through_failures_are_exact(
    postgres: Server, follow: Follow, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    # Transactions are landed in parts.
    monkeypatch.setattr(following, "MOST_CHANGES", chance.choice((3, 10, 1000)))
    monkeypatch.setattr(following, "NOTE_EVERY", 0.1)
    finish = landing.finish

    def failing(*arguments: Any) -> None:
        moment = chance.random()
        if moment < 0.03:
            raise OSError("fails before")
        finish(*arguments)
        if moment > 0.97:
            raise OSError("fails after")

    monkeypatch.setattr(landing, "finish", failing)
    monkeypatch.setattr("anabranch_runtime.sources.ingest.source.FIRST_PAUSE", 0.05)
    monkeypatch.setattr("anabranch_runtime.sources.ingest.source.LONGEST_PAUSE", 0.2)
    names = [f"w{next(_NUMBERS)}" for _ in range(2)]
    run(
        postgres,
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in names),
        f"ALTER TABLE {names[1]} REPLICA IDENTITY FULL",
        *(f"INSERT INTO {n} SELECT i, i FROM generate_series(1, 50) i" for n in names),
    )
    writer = Writer(postgres, names, seed)
    writer.start()
    columns = {"id": "int", "v": "int"}
    streams = [follow(names[0], columns), follow(names[1], columns), follow(names[1], columns, ())]
    try:
        for step in range(12):
            time.sleep(chance.random() * 0.3)
            stream = chance.choice(streams)
            if step == 6:
                postgres.kill()
                time.sleep(0.2)
                postgres.start()
            elif chance.random() < 0.4:
                stream.stop()
                stream.start()
            elif chance.random() < 0.4:
                with session(postgres) as cursor:
                    cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
            for one in streams:
                one.batch(chance.choice((1, 50, 1000)))
    finally:
        writer.stop()
    for stream in streams:
        expected = stream.expected(postgres)

        def is_there(stream: Followed = stream, expected: Any = expected) -> bool:
            return bool(stream.rest() == expected)

        wait(is_there, stream)
        time.sleep(0.3)
        assert is_there()


def test_each_batch_ends_with_a_committed_state(
    postgres: Server, table: str, follow: Follow
) -> None:
    run(postgres, f"INSERT INTO {table} SELECT i, 100 FROM generate_series(1, 40) i")
    stream = follow(table)
    stream.read()
    chance, over = random.Random(5), threading.Event()

    def transfer() -> None:
        with session(postgres) as cursor:
            while not over.is_set():
                a, b = chance.sample(range(1, 41), 2)
                cursor.execute(
                    f"BEGIN; UPDATE {table} SET v = v - 1 WHERE id = {a};"
                    f"UPDATE {table} SET v = v + 1 WHERE id = {b}; COMMIT"
                )

    thread = threading.Thread(target=transfer)
    thread.start()
    try:
        batches = 0
        while batches < 20:
            batches += bool(stream.batch(1))
            assert sum(v for _, v in stream.current) == 4000
    finally:
        over.set()
        thread.join()
    assert stream.read() == stream.expected(postgres)


@pytest.mark.parametrize("fault", ["dropped", "advanced", "made again"])
def test_a_loss_of_the_slot_is_named_and_may_be_skipped(
    postgres: Server, table: str, follow: Follow, fault: str
) -> None:
    run(postgres, f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    slot = f"mine{next(_NUMBERS)}"
    stream = follow(table, VALUES, ("id",), slot=slot)
    assert stream.read() == [(1, 1), (2, 2)]
    stream.stop()
    run(postgres, f"UPDATE {table} SET v = 3 WHERE id = 1", f"INSERT INTO {table} VALUES (4, 4)")
    if fault == "advanced":
        run(postgres, f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    else:
        run(postgres, f"SELECT pg_drop_replication_slot('{slot}')")
    if fault == "made again":
        run(postgres, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    stream.start()
    error = stream.error("changes-lost")
    assert slot in str(error)
    assert "on_loss" in str(error)
    options = {**stream.record.source.options, "on_loss": "skip"}
    source = stream.record.source.model_copy(update={"options": options})
    stream.source.record = stream.record = stream.record.model_copy(update={"source": source})
    wait(lambda: stream.rest() == stream.expected(postgres), stream)
    assert set(stream.unread) == {"changes-lost"}
    run(postgres, f"DELETE FROM {table} WHERE id = 2")
    assert stream.read() == stream.expected(postgres)


def test_a_table_may_be_altered_beside_the_columns_of_the_stream(
    postgres: Server, table: str, follow: Follow
) -> None:
    stream = follow(table)
    stream.read()
    run(
        postgres,
        f"INSERT INTO {table} VALUES (1, 1)",
        f"ALTER TABLE {table} ADD more int DEFAULT 5",
        f"INSERT INTO {table} VALUES (2, 2)",
        f"ALTER TABLE {table} DROP more",
        f"INSERT INTO {table} VALUES (3, 3)",
    )
    assert stream.read() == stream.expected(postgres)
    run(
        postgres,
        f"INSERT INTO {table} VALUES (4, 4)",
        f"ALTER TABLE {table} RENAME v TO w",
        f"INSERT INTO {table} VALUES (5, 5)",
    )
    wait(lambda: stream.source.error is not None, stream)
    error = stream.source.error
    assert error is not None
    assert error.code in ("table-altered", "no-column")
    assert "'v'" in str(error)
    assert stream.rest() == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_truncation_is_refused_after_the_changes_before_it(
    postgres: Server, table: str, follow: Follow
) -> None:
    stream = follow(table)
    stream.read()
    run(postgres, f"INSERT INTO {table} VALUES (1, 1)", f"TRUNCATE {table}")
    assert "DELETE" in str(stream.error("table-truncated"))
    assert stream.rest() == [(1, 1)]


def test_a_table_that_is_created_again_is_noticed(
    postgres: Server, table: str, follow: Follow
) -> None:
    stream = follow(table)
    stream.read()
    stream.stop()
    run(
        postgres,
        f"DROP TABLE {table}",
        f"CREATE TABLE {table} (id bigint PRIMARY KEY, v int)",
        f"INSERT INTO {table} VALUES (1, 1)",
    )
    stream.start()
    assert "created again" in str(stream.error("changes-lost"))


def test_a_server_that_is_away_is_waited_for(
    postgres: Server, table: str, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch_runtime.sources.ingest.source.LONGEST_PAUSE", 0.2)
    stream = follow(table)
    stream.read()
    run(postgres, f"INSERT INTO {table} VALUES (1, 1)")
    postgres.stop()
    try:
        stream.error("no-server")
    finally:
        postgres.start()
    run(postgres, f"INSERT INTO {table} VALUES (2, 2)")
    wait(lambda: stream.rest() == [(1, 1), (2, 2)], stream)


def test_slot_and_publication_end_with_the_stream(
    postgres: Server, table: str, follow: Follow
) -> None:
    stream = follow(table)
    stream.read()
    slots = "SELECT count(*)::int FROM pg_replication_slots"
    publications = f"SELECT pubname FROM pg_publication_tables WHERE tablename = '{table}'"
    before = rows(postgres, slots)[0][0]
    assert len(rows(postgres, publications)) == 1
    stream.stop()
    stream.source.drop()
    assert rows(postgres, slots)[0][0] == before - 1
    assert rows(postgres, publications) == []


def test_the_slot_moves_on_without_changes_of_the_table(
    postgres: Server, table: str, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "NOTE_EVERY", 0.1)
    slot = f"mine{next(_NUMBERS)}"
    other = f"other{next(_NUMBERS)}"
    stream = follow(table, VALUES, ("id",), slot=slot)
    stream.read()
    run(postgres, f"CREATE TABLE {other} AS SELECT i FROM generate_series(1, 10000) i")
    where = f"FROM pg_replication_slots WHERE slot_name = '{slot}'"
    start = rows(postgres, f"SELECT confirmed_flush_lsn {where}")
    wait(lambda: rows(postgres, f"SELECT confirmed_flush_lsn {where}") > start, stream)
    wait(lambda: stream.source.status.behind == 0, stream)
    stream.stop()
    stream.start()
    run(postgres, f"INSERT INTO {table} VALUES (1, 1)")
    assert stream.read() == [(1, 1)]


@pytest.mark.parametrize("waits", mostly_slow([(2.6,), (2.6, 3.4, 4.2)]), ids=len)
def test_a_quiet_table_goes_on_beside_a_busy_one(
    postgres: Server, table: str, follow: Follow, waits: Sequence[float]
) -> None:
    other = f"other{next(_NUMBERS)}"
    run(postgres, f"CREATE TABLE {other} (i int)")
    stream = follow(table)
    stream.read()
    for wait_for in waits:
        until = time.monotonic() + wait_for
        while time.monotonic() < until:
            run(postgres, f"INSERT INTO {other} SELECT i FROM generate_series(1, 100) i")
            time.sleep(0.05)
        stream.stop()
        stream.start()
        run(postgres, f"INSERT INTO {table} VALUES ({int(10 * wait_for)}, 1)")
        assert stream.read() == stream.expected(postgres)


REFUSED = {
    "no table": ("", "no-table", {}, ("id",)),
    "a view": ("CREATE VIEW {t} AS SELECT 1 AS id, 2 AS v", "unsupported-table", {}, ("id",)),
    "no key": ("CREATE TABLE {t} (id bigint, v int)", "not-a-key", {}, ("id",)),
    "another key": ("CREATE TABLE {t} (id bigint, v int PRIMARY KEY)", "not-a-key", {}, ("id",)),
    "whole rows": ("CREATE TABLE {t} (id bigint PRIMARY KEY, v int)", "incomplete-changes", {}, ()),
    "a second key": (
        "CREATE TABLE {t} (id bigint NOT NULL UNIQUE, v int PRIMARY KEY)",
        "incomplete-changes", {}, ("id",),
    ),
    "no column": ("CREATE TABLE {t} (id bigint PRIMARY KEY)", "no-column", {}, ("id",)),
    "a type": ("CREATE TABLE {t} (id bigint PRIMARY KEY, v date)", "unsupported-type", {}, ("id",)),
    "an operation": (
        "CREATE TABLE {t} (id bigint PRIMARY KEY, v int, op int)", "bad-operation", {}, ("id",),
    ),
    "a slot": (
        "CREATE TABLE {t} (id bigint PRIMARY KEY, v int);"
        " SELECT pg_create_logical_replication_slot('{t}', 'pgoutput')",
        "slot-exists", {"slot": "{t}"}, ("id",),
    ),
    "a publication": (
        "CREATE TABLE {t} (id bigint PRIMARY KEY, v int); CREATE PUBLICATION {t}",
        "bad-publication", {"publication": "{t}"}, ("id",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_a_table_that_cant_be_followed_is_refused_with_a_remedy(
    postgres: Server, follow: Follow, fault: str
) -> None:
    statement, code, options, key = REFUSED[fault]
    name = f"no{next(_NUMBERS)}"
    if statement:
        run(postgres, *statement.format(t=name).split(";"))
    stream = follow(name, VALUES, key, **{k: v.format(t=name) for k, v in options.items()})
    assert stream.error(code).remedy
    if fault == "a slot":
        run(postgres, f"SELECT pg_drop_replication_slot('{name}')")


def test_a_user_without_permission_is_refused(postgres: Server, table: str, follow: Follow) -> None:
    run(postgres, "CREATE ROLE poor LOGIN", f"GRANT SELECT ON {table} TO poor")
    url = postgres.url.replace("anabranch@", "poor@")
    stream = follow(table, VALUES, ("id",), url=url)
    assert "REPLICATION" in str(stream.error("no-permission"))

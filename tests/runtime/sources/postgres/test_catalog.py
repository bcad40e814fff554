"""Tests of columns of followed PostgreSQL tables that are added, widened, dropped and renamed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.protocol.registered import ColumnRecord, StreamRecord
from scripts.postgres import Server
from tests.runtime.sources.postgres.followed import Followed, table_record, wait
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.postgres import run, session

_NUMBERS = count()
COLUMNS = {"id": "int", "v": "int", "d": "decimal(6,2)", "w": "string"}
Follow = Callable[[], Followed]


def added(record: StreamRecord, name: str, kind: str, default: str | None = None) -> StreamRecord:
    columns = (*record.columns, ColumnRecord(name=name, type=kind))
    return record.model_copy(update={"columns": columns, "added": (*record.added, (name, default))})


def widened(record: StreamRecord, name: str, kind: str) -> StreamRecord:
    first = {c.name: c.type for c in record.columns}[name]
    columns = tuple(
        ColumnRecord(name=name, type=kind) if c.name == name else c for c in record.columns
    )
    known = {name: first, **dict(record.widened)}
    return record.model_copy(update={"columns": columns, "widened": tuple(known.items())})


def dropped(record: StreamRecord, name: str) -> StreamRecord:
    kind = {c.name: c.type for c in record.columns}[name]
    columns = tuple(c for c in record.columns if c.name != name)
    return record.model_copy(
        update={"columns": columns, "dropped": (*record.dropped, (name, kind))}
    )


@pytest.fixture
def table(postgres: Server) -> Iterator[str]:
    name = f"altered{next(_NUMBERS)}"
    run(
        postgres,
        f"CREATE TABLE {name} (id int PRIMARY KEY, v int, d numeric(6,2), w varchar(9))",
        f"ALTER TABLE {name} REPLICA IDENTITY FULL",
        f"INSERT INTO {name} SELECT i, i, i / 4.0, i FROM generate_series(1, 9) i",
    )
    yield name
    run(postgres, f"DROP TABLE {name}")


@pytest.fixture
def stream(postgres: Server, table: str, tmp_path: Path) -> Iterator[Followed]:
    record = table_record(postgres, table, COLUMNS).model_copy(update={"registration": table})
    found = Followed(record, tmp_path / "home")
    assert found.read() == found.expected(postgres)
    yield found
    found.stop()
    found.source.drop()


def test_a_column_of_the_table_is_read_once_it_is_registered(
    postgres: Server, table: str, stream: Followed
) -> None:
    run(
        postgres,
        f"ALTER TABLE {table} ADD x bigint DEFAULT 5",
        f"INSERT INTO {table} VALUES (10, 10, 1, 'a', 100)",
    )
    assert stream.read() == stream.expected(postgres)
    assert stream.source.status.new_columns == ("x",)
    stream.stop()
    stream.start()
    wait(lambda: stream.source.status.new_columns == ("x",), stream)
    stream.change(added(stream.record, "x", "bigint", "5"))
    assert not stream.source.status.new_columns
    run(postgres, f"INSERT INTO {table} VALUES (11, 11, 1, 'b', 101), (12, 12, 1, 'c', NULL)")
    found = {row[0]: row[-1] for row in stream.read()}
    assert found == {**dict.fromkeys(range(1, 11), 5), 11: 101, 12: None}
    # A value written before the registration is read with an update.
    run(postgres, f"UPDATE {table} SET x = x WHERE x <> 5")
    assert stream.read() == stream.expected(postgres)


def test_no_value_is_missed_of_a_column_that_the_stream_has_first(
    postgres: Server, table: str, stream: Followed
) -> None:
    stream.change(added(stream.record, "x", "decimal(6,2)", "2.5"))
    run(postgres, f"UPDATE {table} SET v = 0 WHERE id < 3")
    assert stream.read()[0] == (1, 0, Decimal("0.25"), "1", Decimal("2.50"))
    with session(postgres) as cursor:
        # One transaction has changes of both table layouts.
        cursor.execute("BEGIN")
        cursor.execute(f"UPDATE {table} SET v = 1 WHERE id = 3")
        cursor.execute(f"ALTER TABLE {table} ADD x numeric(6,2) DEFAULT 2.5")
        cursor.execute(f"UPDATE {table} SET x = 7 WHERE id = 4")
        cursor.execute("COMMIT")
    run(postgres, f"DELETE FROM {table} WHERE id = 5")
    assert stream.read() == stream.expected(postgres)
    assert not stream.source.status.new_columns


def test_a_wider_column_waits_for_the_stream(
    postgres: Server, table: str, stream: Followed
) -> None:
    run(
        postgres,
        f"INSERT INTO {table} VALUES (10, 10, 1, 'a')",
        f"ALTER TABLE {table} ALTER v TYPE bigint, ALTER id TYPE bigint",
        f"UPDATE {table} SET v = 3000000000 WHERE id < 4",
        f"INSERT INTO {table} VALUES (4000000000, 1, 1, 'b')",
    )
    for name in ("id", "v"):
        error = stream.error("table-altered")
        assert f"widen-column {table} {name} 'bigint'" in error.remedy
        stream.record = widened(stream.record, name, "bigint")
        stream.source.record = stream.record
        wait(lambda told=str(error): str(stream.source.error) != told, stream)  # type: ignore[misc]
    assert stream.read() == stream.expected(postgres)
    # The stream's column may be widened first; more digits.
    stream.change(widened(stream.record, "d", "decimal(14,2)"))
    run(
        postgres,
        f"UPDATE {table} SET d = 9999.99 WHERE id = 4",
        f"ALTER TABLE {table} ALTER d TYPE numeric(14,2)",
        f"UPDATE {table} SET d = 123456789012.34 WHERE id = 5",
    )
    assert stream.read() == stream.expected(postgres)
    assert not stream.invalid


def test_a_renamed_column_waits_until_the_stream_drops_it(
    postgres: Server, table: str, stream: Followed
) -> None:
    run(
        postgres,
        f"UPDATE {table} SET w = 'old' WHERE id = 1",
        f"ALTER TABLE {table} RENAME w TO note",
        f"UPDATE {table} SET note = 'new' WHERE id = 2",
    )
    error = stream.error("table-altered")
    assert "'w'" in error.message
    assert f"drop-column {table} w" in error.remedy
    assert (1, 1, Decimal("0.25"), "old") in stream.rest()
    stream.change(dropped(stream.record, "w"))
    assert stream.read() == stream.expected(postgres)
    assert stream.source.status.new_columns == ("note",)
    stream.change(added(stream.record, "note", "string"))
    run(postgres, f"UPDATE {table} SET note = note")
    assert stream.read() == stream.expected(postgres)


class Altered:
    """Random rows of a table whose columns change together with the stream's."""

    def __init__(self, server: Server, table: str, stream: Followed, seed: int) -> None:
        self.server, self.table, self.stream = server, table, stream
        self.chance, self.wide = random.Random(seed), False
        self.values: dict[str, Callable[[], Any]] = {
            "v": lambda: self.chance.choice((None, 1, 2, *((1 << 40,) if self.wide else ()))),
            "d": lambda: self.chance.choice((None, "1.25", "9999.99")),
            "w": lambda: self.chance.choice((None, "", "a", "b")),
        }

    def write(self) -> None:
        """Execute a random transaction."""
        chance = self.chance
        with session(self.server) as cursor:
            cursor.execute("BEGIN")
            for _ in range(chance.choice((1, 2, 5))):
                number, first = chance.randrange(30), chance.randrange(30)
                names = list(self.values)
                given = [self.values[name]() for name in names]
                marks = ", ".join(["%s"] * len(names))
                sets = ", ".join(f"{name} = excluded.{name}" for name in names)
                cursor.execute(
                    *chance.choice((
                        (
                            f"INSERT INTO {self.table} (id, {', '.join(names)}) VALUES"
                            f" ({number}, {marks}) ON CONFLICT (id) DO UPDATE SET {sets}",
                            given,
                        ),
                        (f"DELETE FROM {self.table} WHERE id BETWEEN %s AND %s", (first, number)),
                        (f"UPDATE {self.table} SET {names[0]} = %s WHERE id > %s",
                         (given[0], first)),
                    ))
                )  # fmt: skip
            cursor.execute(chance.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))

    def alter(self, statement: str, record: StreamRecord, *, touch: str = "") -> None:
        """Change table and stream, in random order.

        Args:
            touch: the column whose values are written again, if the stream has it later.
        """

        def table() -> None:
            run(self.server, f"ALTER TABLE {self.table} {statement}")

        if self.chance.random() < 0.5:
            self.stream.change(record)
            if self.chance.random() < 0.5:
                self.write()
            table()
            return
        table()
        if self.chance.random() < 0.5:
            self.write()
        self.stream.change(record)
        if touch:
            run(self.server, f"UPDATE {self.table} SET {touch} = {touch}")

    def steps(self) -> list[Callable[[], None]]:
        """Return the changes of columns, in random order."""
        stream = self.stream

        def add() -> None:
            default = self.chance.choice((None, "7"))
            given = "" if default is None else f" DEFAULT {default}"
            self.alter(f"ADD x int{given}", added(stream.record, "x", "int", default), touch="x")
            self.values["x"] = lambda: self.chance.choice((None, 7, 8))

        def widen() -> None:
            self.alter("ALTER v TYPE bigint", widened(stream.record, "v", "bigint"))
            self.wide = True

        def drop() -> None:
            del self.values["w"]
            self.alter("DROP w", dropped(stream.record, "w"))

        found = [add, widen, drop]
        self.chance.shuffle(found)
        return found


@pytest.mark.parametrize("seed", mostly_slow(range(20)))
def test_random_changes_and_columns_amount_to_the_table(
    postgres: Server, table: str, stream: Followed, seed: int
) -> None:
    altered = Altered(postgres, table, stream, seed)
    chance, steps = altered.chance, altered.steps()
    for number in range(24):
        altered.write()
        if number % 8 == 4:
            steps.pop()()
        if chance.random() < 0.2:
            stream.stop()
            stream.start()
        elif chance.random() < 0.2:
            with session(postgres) as cursor:
                cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        stream.batch(chance.choice((1, 50, 1000)))
        time.sleep(chance.random() * 0.05)

    wait(lambda: stream.rest() == stream.expected(postgres), stream)
    assert not stream.invalid

"""Compare PostgreSQL's ``to_char`` of times with its translation."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.clauses.char_patterns import as_sparks
from anabranch_planner.sql.dialects import to_spark
from scripts.postgres import Server
from tests.support.surroundings.postgres import server, session
from tests.support.worlds.batch import batch_rows, streams_of

ELEMENTS = (
    "YYYY", "YY", "MM", "DDD", "DD", "HH24", "HH12", "HH", "MI", "SS", "MS", "US", "Q", "yyyy",
    "yy", "mm", "ddd", "dd", "hh24", "hh12", "hh", "mi", "ss", "ms", "us", "q", "AM", "PM", "Mon",
    "Dy",
)  # fmt: skip
BETWEEN = (
    "-", "/", " ", ":", ".", ",", '"T"', '" of "', '"o\'clock"', "_", "(", "[", "#", "{", "7", "'",
)  # fmt: skip


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server."""
    yield from server()


def moments(chance: random.Random) -> list[datetime]:
    """Return random times from the year 1 to 9999, with and without fractions."""
    days, micros = (9998 * 365, 86_400_000_000)
    made = [
        datetime.fromisoformat("0001-01-01")
        + timedelta(days=chance.randrange(1, days), microseconds=chance.randrange(micros))
        for _ in range(30)
    ]
    listed = ("2024-12-31", "2024-02-29 12:00:00", "1969-07-20 00:00:01")
    return [*made, *map(datetime.fromisoformat, listed)]


def test_texts_are_postgres_texts(postgres: Server) -> None:
    """Compare random patterns over random times, and each pattern element alone."""
    chance = random.Random(11)
    times = moments(chance)
    table = pa.table({"id": range(len(times)), "ts": pa.array(times, pa.timestamp("us"))})
    streams = streams_of({"t": table})
    patterns = list(ELEMENTS)
    for _ in range(150):
        parts = [chance.choice(ELEMENTS)]
        for _ in range(chance.randrange(1, 6)):
            parts += [chance.choice(BETWEEN), chance.choice(ELEMENTS)]
        patterns.append("".join(parts))
    for beginning in range(0, len(patterns), 20):
        items = ", ".join(
            "to_char(ts, '{}') AS c{}".format(pattern.replace("'", "''"), place)
            for place, pattern in enumerate(patterns[beginning : beginning + 20])
        )
        statement = f"SELECT id, {items} FROM t"
        translated = to_spark(statement, "postgres", streams)
        assert sorted(batch_rows(translated, {"t": table})) == asked(postgres, statement, times)


def asked(postgres: Server, statement: str, times: list[datetime]) -> list[tuple[Any, ...]]:
    """Return the rows of PostgreSQL, sorted."""
    values = ", ".join(f"({n}, TIMESTAMP '{t.isoformat(' ')}')" for n, t in enumerate(times))
    with session(postgres) as cursor:
        cursor.execute(f"WITH t(id, ts) AS (VALUES {values}) {statement}")
        return sorted(cursor.fetchall())


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("FMDD", "FMDD"),
        ("Day", "Day"),
        ("DDTH", "TH"),
        ("YYYY-MM-DDTHH24", "THH24"),
        ("SSSS", "SSSS"),
        ("YYY", "YYY"),
        ("Month", "th"),
        ("MONTH", "MONTH"),
        ("Mm", "Mm"),
        ("IYYY-IW", "IYYY"),
        ("HH24:MI TZ", "TZ"),
        ("am", "am"),
        ("", "empty"),
        ('YYYY "open', "open"),
        ('YYYY\\"', "\\"),
    ],
)
def test_other_elements_are_named(pattern: str, named: str) -> None:
    with pytest.raises(ValueError, match=f"(?s).*{named.replace(chr(92), chr(92) * 2)}"):
        as_sparks(pattern)


@pytest.mark.parametrize("call", ["to_char(id, '999')", "to_char(ts, s)", "to_char(ts, 'J')"])
def test_other_calls_are_refused_in_the_authors_words(call: str) -> None:
    streams = streams_of(
        {"t": pa.table({"id": [1], "s": ["x"], "ts": pa.array([0], pa.timestamp("us"))})}
    )
    with pytest.raises(QueryError) as refused:
        to_spark(f"SELECT {call} AS x FROM t", "postgres", streams)
    assert "to_char()" in refused.value.message
    assert refused.value.position == (1, 8)

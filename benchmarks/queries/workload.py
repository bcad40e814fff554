"""Workload of many queries over few streams: joins of three to five streams, with filters on most
aliases.

Streams have four join columns with different numbers of values, two columns to filter by, and an
event time. Every query has a window. Equal seeds give equal workloads, and a smaller workload is a
prefix of a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

#: Join column -> its number of values.
KEYS = {"k0": 100, "k1": 1_000, "k2": 10_000, "k3": 100_000}
COLUMNS = {**dict.fromkeys(KEYS, "bigint"), "v": "int", "w": "int", "ts": "timestamp"}
#: Number of values of a filter's column, which are integers from 0 on.
VALUES = 1_000
WINDOWS = ("1 minute", "5 minutes", "10 minutes")
#: Share of aliases with a filter.
FILTERED = 0.7


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the workload, with the fields of its registration."""

    name: str
    sql: str
    window: str
    streams: tuple[str, ...]

    @property
    def body(self) -> dict[str, Any]:
        """The body of the query's registration."""
        return {
            "id": self.name,
            "sql": self.sql,
            "window": self.window,
            "sink": {"format": "count"},
        }


def streams(count: int) -> list[str]:
    """Return the names of ``count`` streams."""
    return [f"s{number:02}" for number in range(count)]


def queries(
    count: int, over: int, seed: int = 0, *, first: int = 0, prefix: str = "q"
) -> Iterator[Query]:
    """Return ``count`` queries over ``over`` streams, beginning with stream number ``first``."""
    rng, names = Random(seed), streams(first + over)[first:]
    for number in range(count):
        yield _query(f"{prefix}{number:04}", names, rng)


def _query(name: str, names: list[str], rng: Random) -> Query:
    chosen = rng.sample(names, rng.randint(3, 5))
    star = rng.random() < 0.5
    joins = []
    for at in range(1, len(chosen)):
        partner = 0 if star else at - 1
        key = rng.choice(tuple(KEYS))
        joins.append(f"JOIN {chosen[at]} a{at} ON a{partner}.{key} = a{at}.{key}")
    filters = [
        f"a{at}.{rng.choice('vw')} {rng.choice('<>')} {rng.randrange(VALUES)}"
        for at in range(len(chosen))
        if rng.random() < FILTERED
    ]
    where = f" WHERE {' AND '.join(filters)}" if filters else ""
    shown = ", ".join(f"a{at}.v AS v{at}" for at in range(len(chosen)))
    sql = f"SELECT {shown} FROM {chosen[0]} a0 {' '.join(joins)}{where}"
    return Query(name, sql, rng.choice(WINDOWS), tuple(chosen))

"""Compare random statements over streams with interval columns with DuckDB, with deletes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.sql.files import Block
from tests.sql.run import Written
from tests.support.combined.streams import MINUTE, Kind, RandomStream
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.redis import redis_url

#: Expressions over both streams, with DuckDB's.
_ITEMS = [
    ("e.wait", "e.wait"),
    ("e.age", "e.age"),
    ("e.wait + r.wait", "e.wait + r.wait"),
    ("r.age - e.age", "r.age - e.age"),
    ("e.wait * 3", "e.wait * 3"),
    ("-r.wait", "to_microseconds(-epoch_us(r.wait))"),
    ("e.ts - r.ts", "e.ts - r.ts"),
    ("e.ts + r.wait", "e.ts + r.wait"),
    ("e.ts - e.age", "e.ts - to_months(e.age)"),
    ("DATE '2024-01-31' + r.age", "CAST(DATE '2024-01-31' + to_months(r.age) AS DATE)"),
    ("CAST(r.age AS INT)", "r.age"),
    ("CAST(CAST(e.wait AS STRING) AS INTERVAL DAY TO SECOND)", "e.wait"),
    ("coalesce(e.wait, r.wait, INTERVAL '7' HOUR)", "coalesce(e.wait, r.wait, INTERVAL 7 HOUR)"),
    ("greatest(e.wait, r.wait)", "greatest(e.wait, r.wait)"),
]  # fmt: skip
_JOINS = [
    ("e.wait = r.wait", "e.wait = r.wait"),
    ("e.age = r.age", "e.age = r.age"),
    ("e.k = r.k AND e.wait < r.wait", "e.k = r.k AND e.wait < r.wait"),
    ("e.k = r.k AND e.age >= r.age", "e.k = r.k AND e.age >= r.age"),
    ("e.ts + e.wait = r.ts + r.wait", "e.ts + e.wait = r.ts + r.wait"),
    ("e.wait = 2 * r.wait", "e.wait = 2 * r.wait"),
    ("e.ts - r.ts = e.wait", "e.ts - r.ts = e.wait"),
    (
        "e.k = r.k AND e.ts - r.ts BETWEEN INTERVAL '-9' MINUTE AND INTERVAL '9' MINUTE",
        "e.k = r.k AND e.ts - r.ts BETWEEN INTERVAL '-9' MINUTE AND INTERVAL '9' MINUTE",
    ),
]
_FILTERS = [
    ("", ""),
    (" WHERE e.wait > INTERVAL '10' SECOND", " WHERE e.wait > INTERVAL 10 SECOND"),
    (" WHERE e.age IN (INTERVAL '1-1' YEAR TO MONTH, INTERVAL '-1' MONTH)",
     " WHERE e.age IN (13, -1)"),
    (" WHERE r.wait IS NOT NULL", " WHERE r.wait IS NOT NULL"),
]  # fmt: skip
_MICROS = "to_microseconds(CAST({} AS BIGINT))"
_AGGREGATES = [
    ("sum(e.wait)", _MICROS.format("sum(epoch_us(e.wait))")),
    ("avg(r.wait)", _MICROS.format("round(sum(epoch_us(r.wait)) / count(r.wait))")),
    ("sum(e.age)", "CAST(sum(e.age) AS INT)"),
    ("avg(e.age)", "CAST(round(sum(e.age) / count(e.age)) AS INT)"),
    ("min(e.wait)", "min(e.wait)"),
    ("max(r.age)", "max(r.age)"),
    ("count(DISTINCT e.wait)", "count(DISTINCT e.wait)"),
    ("count(DISTINCT r.age)", "count(DISTINCT r.age)"),
    ("sum(e.ts - r.ts)", _MICROS.format("sum(epoch_us(e.ts - r.ts))")),
]  # fmt: skip
_KEYS = ["e.wait", "e.age", "r.k", "r.wait"]


def _statement(rng: Random) -> tuple[str, str]:
    joined, filtered = rng.choice(_JOINS), rng.choice(_FILTERS)
    sides = [f"FROM e JOIN r ON {j}{f}" for j, f in zip(joined, filtered, strict=True)]
    form = rng.randrange(5)
    if form == 0:
        some = rng.sample(_AGGREGATES, 2)
        key = rng.choice(_KEYS)
        texts = [", ".join(f"{a[n]} AS a{i}" for i, a in enumerate(some)) for n in (0, 1)]
        made = [
            f"SELECT {key} AS g, {t} {s} GROUP BY {key}" for t, s in zip(texts, sides, strict=True)
        ]
    elif form == 1:
        name = rng.choice(("wait", "age"))
        how = rng.choice(("UNION", "EXCEPT", "INTERSECT", "UNION ALL"))
        made = [f"SELECT {name} AS x FROM e {how} SELECT {name} AS x FROM r"] * 2
    elif form == 2:
        key = rng.choice(("wait", "age"))
        made = [
            f"SELECT {key} AS x, k FROM e QUALIFY row_number() OVER (PARTITION BY k ORDER BY "
            f"{key} DESC NULLS LAST, ts, wait NULLS FIRST, age NULLS FIRST) <= 2"
        ] * 2
    else:
        some = rng.sample(_ITEMS, 3)
        texts = [", ".join(f"{a[n]} AS a{i}" for i, a in enumerate(some)) for n in (0, 1)]
        how = "SELECT DISTINCT" if form == 3 else "SELECT"
        made = [f"{how} {t} {s}" for t, s in zip(texts, sides, strict=True)]
    return made[0], made[1]


def _streams(folder: Path, rng: Random) -> dict[str, RandomStream]:
    found = {}
    for name in ("e", "r"):
        home = folder / name
        home.mkdir(parents=True)
        kind = rng.choice((Kind.CHANGES, Kind.INSERTS))
        lateness = None if kind is Kind.CHANGES else 60 * MINUTE
        found[name] = RandomStream(name, kind, home, lateness, sizes=(0, 2, 4))
    return found


class _Run(Written):
    """A run of random statements over :func:`_streams`."""

    def __init__(self, folder: Path, redis: str, seed: int) -> None:
        rng = Random(f"intervals {seed}")
        self.blocks = [Block("query", *_statement(rng)) for _ in range(12)]
        self.rows = {}
        super(Written, self).__init__(folder, redis, seed, drawn=_streams)


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """Address of a Redis server for the module."""
    with redis_url() as url:
        yield url


@pytest.mark.parametrize("seed", mostly_slow(range(40)))
def test_statements_over_intervals_are_duckdbs(seed: int, tmp_path: Path, redis: str) -> None:
    run = _Run(tmp_path, redis, seed)
    run.play()
    assert run.events["compared"] > 0
    assert any(run.rows.values())

"""Compare random statements with conditions on ``now()`` with DuckDB at the times of batches: rows
enter and leave with time, with deletes, kills, restarts and a clock that is set back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from anabranch_runtime.driver import driver
from tests.sql.files import Block
from tests.sql.run import Written
from tests.support.combined.streams import BEGIN, MINUTE, Kind, RandomStream
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.redis import redis_url

#: Conditions on the time ``{t}``, length of time ``{w}`` and number ``{k}``; ``{now}`` is
#: ``now()``, in DuckDB the time of the batch. Pairs are Spark's SQL and DuckDB's.
_CONDITIONS: tuple[str | tuple[str, str], ...] = (
    "{t} > {now} - INTERVAL '7' MINUTE",
    "{t} >= {now} - INTERVAL '12' MINUTE AND {t} <= {now}",
    "{t} BETWEEN {now} - INTERVAL '20' MINUTE AND {now} - INTERVAL '5' MINUTE",
    "{now} < {t} + INTERVAL '9' MINUTE",
    "{now} - {t} < INTERVAL '11' MINUTE",
    "{t} < {now}",
    "{t} - INTERVAL '3' MINUTE > {now}",
    "date_trunc('hour', {t}) = date_trunc('hour', {now})",
    "date_trunc('minute', {t}) >= date_trunc('minute', {now} - INTERVAL '90' SECOND)",
    "date_trunc('minute', {now}) - INTERVAL '4' MINUTE < {t}",
    "CAST({t} AS DATE) = CAST({now} AS DATE)",
    "CAST({t} AS DATE) < CAST({now} - INTERVAL '10' MINUTE AS DATE)",
    "{t} >= CAST(CAST({now} AS DATE) AS TIMESTAMP)",
    "{t} + {w} < {now}",
    "NOT ({now} - {w} > {t} + INTERVAL '2' MINUTE)",
    "{now} - {t} >= {w}",
    "NOT ({t} < {now} - INTERVAL '8' MINUTE)",
    "date_trunc('week', {t}) = date_trunc('week', {now})",
    "{t} < date_trunc('week', {now} - INTERVAL '9' MINUTE)",
    "date_trunc('month', {t}) = date_trunc('month', {now} - INTERVAL '6' MINUTE)",
    "{t} >= date_trunc('quarter', {now} - INTERVAL '6' MINUTE) - INTERVAL '1' MONTH "
    "AND {t} < date_trunc('month', {now} - INTERVAL '20' MINUTE)",
    "{t} > date_trunc('year', {now} - INTERVAL '12' MINUTE) + INTERVAL '3' MINUTE",
    "({t} > {now} - INTERVAL '6' MINUTE OR {k} = 1 OR {k} IS NULL)",
    "(({t} > {now} - INTERVAL '6' MINUTE AND {t} <= {now} AND {k} > 1) OR {k} = 1)",
    "NOT ({t} < {now} - INTERVAL '8' MINUTE AND ({k} > 2 OR {k} IS NULL))",
    "NOT ({k} > 2 OR {t} < {now} - INTERVAL '8' MINUTE OR {t} > {now})",
    *(
        (
            f"timestampdiff(MINUTE, {{t}}, {{now}}) {test}",
            f"date_sub('minute', {{t}}, {{now}}) {test}",
        )
        for test in ("< 7", "<= 0", ">= 3", "> -4", "= 0", "= -2", "BETWEEN -1 AND 5")
    ),
    ("timestampdiff(SECOND, {now}, {t}) > -250", "date_sub('second', {now}, {t}) > -250"),
    (
        "unix_timestamp() - unix_timestamp({t}) <= 300",
        "floor(epoch({now})) - floor(epoch({t})) <= 300",
    ),
    (
        "unix_seconds({now}) - 200 < unix_seconds({t})",
        "floor(epoch({now})) - 200 < floor(epoch({t}))",
    ),
    ("unix_millis({now}) > unix_millis({t}) + 99000", "epoch_ms({now}) > epoch_ms({t}) + 99000"),
)
_EXPANDED = "SELECT e.k, x FROM e {} WHERE {{c}}"
#: Statements; ``{c}`` and ``{d}`` are conditions on times of ``e`` and ``r``.
_FORMS = (
    "SELECT e.k, count(*) AS n, max(e.ts) AS newest FROM e WHERE {c} GROUP BY e.k",
    "SELECT count(*) AS n FROM e WHERE {c}",
    "SELECT e.k, e.ts, e.k AS again FROM e WHERE {c}",
    "SELECT DISTINCT e.k FROM e WHERE {c}",
    "SELECT e.k, r.ts FROM e JOIN r ON r.k = e.k WHERE {c} AND {d}",
    "SELECT e.k, count(*) AS n FROM e JOIN r ON r.k = e.k AND {d} GROUP BY e.k HAVING count(*) > 1",
    "SELECT e.k, r.ts FROM e LEFT JOIN r ON r.k = e.k WHERE {c}",
    "SELECT e.k, count(r.ts) AS n FROM e LEFT JOIN r ON r.k = e.k WHERE {c} GROUP BY e.k",
    "SELECT k, ts FROM e WHERE {c} AND NOT EXISTS (SELECT 1 FROM r WHERE r.k = e.k)",
    "SELECT e.k, e.ts FROM (SELECT k, ts, wait FROM e UNION ALL SELECT k, ts, wait FROM r) e "
    "WHERE {c}",
    "SELECT k, ts FROM e WHERE {c} QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1",
    "SELECT ts, k FROM e WHERE {c} ORDER BY ts DESC, k NULLS FIRST LIMIT 3",
    "SELECT r.k, s.n FROM r JOIN (SELECT k, count(*) AS n FROM e WHERE {c} GROUP BY k) s "
    "ON s.k = r.k",
    "SELECT r.k, (SELECT count(*) FROM e WHERE e.k = r.k AND {c}) AS n FROM r WHERE {d}",
)


def _statement(rng: Random) -> tuple[str, str]:
    """Return a random statement in Spark's SQL and in DuckDB's."""
    c, d = (rng.choice(_CONDITIONS) for _ in range(2))
    words = [rng.choice(_FORMS)] * 2
    if rng.random() < 0.1:
        tables = "LATERAL VIEW explode(array(1, 2)) t AS x", ", (VALUES (1), (2)) t(x)"
        words = [_EXPANDED.format(table) for table in tables]
    found = []
    for place, (text, now) in enumerate(zip(words, ("now()", "{now}"), strict=True)):
        c_, d_ = (
            (condition if isinstance(condition, str) else condition[place]).format(
                t=f"{name}.ts", w=f"{name}.wait", k=f"{name}.k", now=now
            )
            for name, condition in (("e", c), ("r", d))
        )
        found.append(text.format(c=c_, d=d_))
    return found[0], found[1]


def _streams(folder: Path, rng: Random) -> dict[str, RandomStream]:
    found = {}
    for name in ("e", "r"):
        home = folder / name
        home.mkdir(parents=True)
        kind = rng.choice((Kind.CHANGES, Kind.CHANGES, Kind.INSERTS))
        lateness = None if kind is Kind.CHANGES else 60 * MINUTE
        found[name] = RandomStream(name, kind, home, lateness, sizes=(0, 2, 4))
    return found


class _Run(Written):
    """A run of random statements over :func:`_streams`, whose clock is around the event times.

    Attributes:
        clock: the time of the next batch, in microseconds.
    """

    def __init__(self, folder: Path, redis: str, seed: int) -> None:
        self.clocks = Random(f"clock {seed}")
        rng = Random(f"rolling {seed}")
        self.blocks = [Block("query", *_statement(rng)) for _ in range(10)]
        self.rows = {}
        self.clock = int(BEGIN.timestamp()) * 1_000_000
        super(Written, self).__init__(folder, redis, seed, drawn=_streams)

    def turn(self, *, share: float = 0.3) -> bool:
        if share:
            later = self._minutes * MINUTE + self.clocks.randrange(-10, 40) * 30_000_000
            self.clock = int(BEGIN.timestamp()) * 1_000_000 + later
        ran = super().turn(share=share)
        self.events["batch without input"] += ran and bool(self._quiet_batch())
        return ran

    def _quiet_batch(self) -> bool:
        ends = [stream.ends for stream in self.streams.values()]
        return all(len(e) > 1 and e[-1][0] == e[-2][0] for e in ends)


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """Address of a Redis server for the module."""
    with redis_url() as url:
        yield url


@pytest.mark.parametrize("seed", mostly_slow(range(40)))
def test_rows_come_and_leave_by_the_time(seed: int, tmp_path: Path, redis: str) -> None:
    run = _Run(tmp_path, redis, seed)
    with (
        patch.object(driver, "TICK", 0.0),
        patch.object(time, "time_ns", lambda: 1000 * run.clock),
    ):
        run.play()
    assert run.events["compared"] > 0
    # Compared at the first or second stop, since deletes and the clock may leave no rows at the end
    # (seed 34).
    assert run.events["answers with rows"] > 0

"""Views over windows, and outer joins, with event times in any year from 0001 to 9999.

Tuples arrive in any order, with any lateness, and there are restarts. Tuples that are late by their
stream's watermark are rejected; results of all others must equal DuckDB's.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from random import Random

import pyarrow as pa

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from tests.support.worlds import outer_runs, view_runs
from tests.support.worlds.outer_runs import EPOCH, OuterRun
from tests.support.worlds.view_runs import ViewRun

MILLISECOND, SECOND, DAY = 1_000, 1_000_000, 86_400_000_000
FIRST = (dt.datetime(1, 1, 1, tzinfo=dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)
LAST = (dt.datetime.max.replace(tzinfo=dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)
#: Moments around which times are drawn, in ISO 8601.
_ERAS = (
    "0001-01-01", "1582-10-10", "1899-12-31", "1950-05-05", "1969-12-31T23:59:59.999",
    "1970-01-01", "2026-05-05", "2262-04-11", "9999-12-31T23:59:59",
)  # fmt: skip
#: Values of lateness in microseconds; None: unbounded.
_LATENESS = (None, None, 0, 1500, 3600 * SECOND, 400 * DAY, 3_000_000 * DAY)


def draw_times(rng: Random, batches: int, count: int) -> list[list[int]]:
    """Draw event times of batches in microseconds: around a few moments, in no order."""
    eras = []
    for text in rng.sample(_ERAS, rng.randint(1, 3)):
        moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
        eras.append((moment - EPOCH) // dt.timedelta(microseconds=1))
    if rng.random() < 0.3:
        eras.append(rng.randint(FIRST, LAST))
    if rng.random() < 0.5:
        eras.sort()
    # One time per batch, so that some times arrive long before earlier ones.
    order = [
        rng.choice(eras) if rng.random() < 0.5 else eras[n % len(eras)] for n in range(batches)
    ]

    def time(era: int) -> int:
        if rng.random() < 0.15:
            era = rng.choice(eras)
        unit = rng.choice((1, MILLISECOND, 60 * SECOND, 600 * SECOND, DAY))
        return min(max(era + unit * rng.randint(-20, 40), FIRST), LAST)

    return [[time(era) for _ in range(rng.randint(1, count))] for era in order]


def draw_windows(rng: Random) -> view_runs.Drawn:
    """Draw a view over windows; times are numbers, since windows may begin before the year 0001."""
    unit, name = rng.choice(
        (
            (MILLISECOND, "milliseconds"),
            (SECOND, "seconds"),
            (60 * SECOND, "minutes"),
            (DAY, "days"),
        )
    )
    slide = rng.choice((1, 7, 10, 1000))
    length = slide * rng.choice((1, 1, 2, 3)) + rng.choice((0, 0, 3))
    start = rng.randrange(-slide + 1, slide) if rng.random() < 0.5 else 0
    every, wide = slide * unit, length * unit
    # In DuckDB the remainder of a negative number is negative.
    newest = f"epoch_us(ts) - ((epoch_us(ts) - {start * unit}) % {every} + {every}) % {every}"
    having = rng.choice(("", "", " HAVING count(*) > 1"))
    spark = (
        "SELECT unix_micros(window.start) AS b, unix_micros(window.end) AS e, count(*) AS c, "
        "sum(n) AS s, unix_micros(min(ts)) AS lo FROM t "
        f"GROUP BY window(ts, '{length} {name}', '{slide} {name}', '{start} {name}'){having}"
    )
    duck = (
        f"SELECT o, o + {wide}, count(*), sum(n), epoch_us(min(ts)) FROM (SELECT *, {newest} "
        f"- i * {every} AS o FROM t, range({-(-length // slide)}) AS r(i)) "
        f"WHERE o + {wide} > epoch_us(ts) GROUP BY o{having}"
    )
    return view_runs.Drawn(spark, duck)


def run_windows(folder: Path, seed: int) -> tuple[str, int]:
    """Run a random view over windows; return its statement and its number of rows at the end."""
    rng = Random(seed)
    run = ViewRun(folder, draw_windows(rng), rng=rng)
    lateness, mark = rng.choice(_LATENESS), None
    try:
        for times in draw_times(rng, rng.randint(2, 5), 30):
            timely = [time for time in times if mark is None or time >= mark]
            rows = {
                c: pa.nulls(len(timely), f.type)
                for c, f in zip(view_runs.SCHEMA.names, view_runs.SCHEMA, strict=True)
            }
            rows["n"] = pa.array([rng.randrange(9) for _ in timely], pa.int64())
            rows["ts"] = pa.array(timely, pa.timestamp("us", "UTC"))
            batch = pa.RecordBatch.from_arrays(list(rows.values()), schema=view_runs.SCHEMA)
            if timely and lateness is not None:
                mark = max(max(timely) - lateness, mark or FIRST - lateness)
            run.feed(batch, mark)
            _then(rng, run)
        run.check()
        return run.drawn.spark, len(run.wanted())
    finally:
        run.tables.close()


def draw_outer(rng: Random) -> outer_runs.Drawn:
    """Draw an outer, semi or anti join of two streams."""
    kind = rng.choice(("left", "semi", "anti"))
    bound, unit = rng.choice((1, 20, 400)), rng.choice(("SECOND", "MINUTE", "DAY"))
    if rng.random() < 0.1:
        bound, unit = 3_000_000, "DAY"
    before = rng.random() < 0.3
    on = f"c.ts BETWEEN a.ts AND a.ts + INTERVAL '{bound}' {unit}"
    deadline = f"a.ts + INTERVAL {bound} {unit}"
    if before:
        on = f"c.ts <= a.ts - INTERVAL '{bound}' {unit}"
        deadline = f"a.ts - INTERVAL {bound} {unit}"
    shown = "a.v AS y, a.k AS x" + (", c.v AS w" if kind == "left" else "")
    return outer_runs.Drawn(kind, shown, "a", f"c.k = a.k AND {on}", "", deadline)


def run_outer(folder: Path, seed: int) -> tuple[str, int]:
    """Run a random outer join; return its statement and its number of rows at the end."""
    rng = Random(seed)
    sort = parse_type(rng.choice(("timestamp", "timestamp", "timestamp_ntz")))
    columns = (("k", parse_type("int")), ("v", parse_type("bigint")), ("ts", sort))
    bounded = [lateness for lateness in _LATENESS if lateness is not None]
    streams = {
        "a": Stream(StreamName("a"), columns, "ts", lateness=rng.choice(_LATENESS)),
        "c": Stream(StreamName("c"), columns, "ts", lateness=rng.choice(bounded)),
    }
    run = OuterRun(folder, draw_outer(rng), streams, rng)
    try:
        for times in draw_times(rng, rng.randint(3, 6), 30):
            run.feed(
                [(rng.choice("aac"), rng.randrange(4), rng.randrange(9), time) for time in times]
            )
            _then(rng, run)
        run.feed([("c", None, 0, rng.choice((LAST, max(row[4] for row in run.rows))))])
        run.tables.drain()
        found, wanted = run.table(), run.wanted()
        assert found == wanted, f"{run.drawn.spark}\n{found}\n{wanted}"
        return run.drawn.spark, len(wanted)
    finally:
        run.tables.close()


def _then(rng: Random, run: ViewRun | OuterRun) -> None:
    """After a batch, do nothing, read the rows, or restart."""
    then = rng.random()
    if then < 0.4:
        run.tables.drain()
    elif then < 0.6:
        run.world.restart()

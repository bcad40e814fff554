"""Compare views' rolling conditions (on ``now()``) with a loop over all rows: rows enter and leave
with time.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from random import Random

import pyarrow as pa
import pytest

from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import MOMENT, WEIGHT, TimeLimit
from anabranch_runtime.columns.arrow_types import typed_field
from anabranch_runtime.views.rolling import RollingRows
from tests.support.scenarios.seeds import mostly_slow

_COLUMNS = pa.schema(
    [typed_field("k", parse_type("bigint")), typed_field("s", parse_type("string"))]
)
_TIME = pa.timestamp("us", "UTC")
_Row = tuple[int, str | None, int | None, int | None]


def _limits(rng: Random) -> list[TimeLimit]:
    def drawn(number: int, *, until: bool) -> TimeLimit:
        unit, shift, delay = rng.choice((1, 1, 7, 60)), rng.randrange(-90, 90), rng.choice((0, 5))
        if months := rng.choice((0, 0, 1, 3, 12)):
            # Around the first of January, when a quarter and a year begin.
            later = rng.choice((0, 0, -1, 1, 5)) if rng.random() < 0.5 else 0
            return TimeLimit(f"{MOMENT}{number}", shift, until, 1, delay, months, later)
        return TimeLimit(f"{MOMENT}{number}", shift, until, unit, delay)

    return [drawn(rng.choice((1, 2)), until=rng.random() < 0.7) for _ in range(rng.randint(1, 3))]


def _first_of(month: int) -> int:
    """Return the first of a month in microseconds, counted from January 1970."""
    first = datetime(1970 + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return round(first.timestamp()) * 1_000_000


def _moment(limit: TimeLimit, time: int) -> int:
    moment = time + limit.shift
    if limit.months:
        found = -240
        while _first_of(found + limit.later) < moment:
            found += limit.months
        return _first_of(found) + limit.delay
    while moment % limit.unit:
        moment += 1
    return moment + limit.delay


def _is_there(limits: list[TimeLimit], row: _Row, now: int) -> bool:
    times = {f"{MOMENT}1": row[2], f"{MOMENT}2": row[3]}
    for limit in limits:
        time = times[limit.column]
        if time is None or (now < _moment(limit, time)) != limit.until:
            return False
    return True


def _table(rows: list[_Row], weights: list[int] | None) -> pa.Table:
    arrays = [
        pa.array([row[n] for row in rows], t) for n, t in enumerate((pa.int64(), pa.string()))
    ]
    arrays += [pa.array([row[n] for row in rows], _TIME) for n in (2, 3)]
    names = ["k", "s", f"{MOMENT}1", f"{MOMENT}2"]
    if weights is not None:
        arrays.append(pa.array(weights, pa.int64()))
        names.append(WEIGHT)
    return pa.table(arrays, names=names)


def test_moments_at_the_first_of_months() -> None:
    rng = Random(1)
    for _ in range(300):
        months, later = rng.choice((1, 3, 12)), rng.randrange(-14, 14)
        limit = TimeLimit(f"{MOMENT}1", rng.randrange(-9, 9), True, 1, 7, months, later)
        first = _first_of(rng.randrange(-100, 600))
        time = first + rng.choice((0, rng.randrange(-10, 10), rng.randrange(40 * 86_400_000_000)))
        rolling = RollingRows([limit], _COLUMNS)
        rolling.apply(_table([(1, "a", time, None)], None), -(1 << 60))
        assert rolling.next == _moment(limit, time)


@pytest.mark.parametrize("seed", mostly_slow(range(60), 20))
def test_changes_add_up_to_the_rows_that_are_there(seed: int) -> None:
    rng = Random(seed)
    limits = _limits(rng)
    rolling, now = RollingRows(limits, _COLUMNS), 0
    net, shown = Counter[_Row](), Counter[tuple[int, str | None]]()
    for _ in range(rng.choice((5, 30))):
        now += rng.choice((0, 1, 5, 40, 300))

        def time(now: int = now) -> int | None:
            return None if rng.random() < 0.05 else now + rng.randrange(-200, 100)

        fresh = [
            (rng.randrange(3), rng.choice(("a", "ü", None)), time(), time())
            for _ in range(rng.choice((0, 0, 1, 3, 20)))
        ]
        weights = None if rng.random() < 0.3 else [rng.choice((1, 1, 2, -1)) for _ in fresh]
        for row, weight in zip(fresh, weights or [1] * len(fresh), strict=True):
            net[row] += weight
        due = rolling.next <= now
        changes = rolling.apply(_table(fresh, weights) if fresh or weights else None, now)
        assert fresh or due or not changes.num_rows
        assert rolling.next > now
        for row in changes.to_pylist():
            shown[row["k"], row["s"]] += row[WEIGHT]
        expected = Counter[tuple[int, str | None]]()
        for row, weight in net.items():
            expected[row[:2]] += weight * _is_there(limits, row, now)
        assert +shown == +expected
        assert -shown == -expected
        if rng.random() < 0.2:
            dumped = rolling.dump()
            rolling = RollingRows(limits, _COLUMNS)
            rolling.load(dumped)


def test_rows_that_have_left_are_forgotten() -> None:
    rolling = RollingRows([TimeLimit(f"{MOMENT}1", 100, until=True)], _COLUMNS)
    for now in range(2000):
        rows: list[_Row] = [(n, "text", now, None) for n in range(10)]
        rolling.apply(_table(rows, None), now)
    # A hundred batches of ten rows, each of 16 bytes and a text.
    assert rolling.bytes < 4 * 100 * 10 * 60
    assert rolling.apply(None, 3000).num_rows == 1000
    assert (rolling.bytes, rolling.next) == (0, 1 << 62)

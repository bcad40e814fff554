"""Tests of the groups of a view that may miss joined rows: by time, by key, and by share of
kept rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.plans.rations import Ranking
from anabranch_contract.protocol.activations import LeftOut
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import View
from anabranch_planner.passes import parse_sql
from anabranch_runtime.index.ranks import limit, ranks
from anabranch_runtime.views.left_out import MOST, GroupKnowledge, standing, with_gap

STREAM = Stream(
    StreamName("t"),
    (("k", parse_type("bigint")), ("ts", parse_type("timestamp"))),
    "ts",
    lateness=0,
)
MINUTE = 60_000_000


def view(sql: str) -> View:
    found = parse_sql("v", sql, {"t": STREAM}).view
    assert found is not None
    return found


WINDOWS = view("SELECT window.start AS w, count(*) AS c FROM t GROUP BY window(ts, '10 minutes')")
KEYS = view("SELECT k, count(*) AS c FROM t GROUP BY k")


def windows(*starts: int) -> pa.Table:
    """Return rows of ten-minute windows that begin at these minutes."""
    micros = np.array(starts) * MINUTE
    first, last = WINDOWS.identity
    kind = pa.timestamp("us", "UTC")
    return pa.table(
        {first: pa.array(micros).cast(kind), last: pa.array(micros + 10 * MINUTE).cast(kind)}
    )


def stand(gaps: list[LeftOut], rows: pa.Table, of: View) -> list[GroupKnowledge]:
    return [GroupKnowledge(n) for n in standing(of, gaps, rows)]


def test_windows_outside_are_whole() -> None:
    gap = LeftOut(20 * MINUTE, 35 * MINUTE, 0.5)
    rows = windows(0, 10, 20, 30, 40)
    whole, bounded = GroupKnowledge.WHOLE, GroupKnowledge.BOUNDED
    assert stand([gap], rows, WINDOWS) == [whole, whole, bounded, bounded, whole]
    blind = LeftOut(30 * MINUTE, 30 * MINUTE, 0.0)
    found = stand([gap, blind], rows, WINDOWS)
    assert found == [whole, whole, bounded, GroupKnowledge.UNKNOWN, whole]
    assert stand([LeftOut(None, 5 * MINUTE, 0.5)], rows, WINDOWS) == [bounded, *[whole] * 4]
    assert stand([], rows, WINDOWS) == [whole] * 5


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_keys_below_the_ration_are_whole(share: float) -> None:
    values = pa.array(range(200), pa.int64())
    rows = pa.table({"k": values})
    name = KEYS.keys[0][0]
    found = stand([LeftOut(None, None, share, True, (name, "bigint"))], rows, KEYS)
    ranked = ranks(Ranking((("k", "bigint"),), by_batch=False), lambda _: values, 200, 7)
    kept = ranked < limit(share)
    assert found == [GroupKnowledge.WHOLE if k else GroupKnowledge.UNKNOWN for k in kept]
    # Grouped by something else, the missing keys may concern all groups.
    other = stand([LeftOut(None, None, 0.4, True)], rows, KEYS)
    assert set(other) == {GroupKnowledge.UNBOUNDED}


def test_spans_that_say_the_same_are_one() -> None:
    first, second = LeftOut(0, 10, 0.5), LeftOut(5, 20, 0.5)
    assert with_gap((first,), second) == (LeftOut(0, 20, 0.5),)
    assert with_gap((first,), LeftOut(11, 20, 0.5)) == (first, LeftOut(11, 20, 0.5))
    assert with_gap((first,), LeftOut(0, 10, 0.2)) == (LeftOut(0, 10, 0.2),)
    assert with_gap((first,), LeftOut(5, 20, 0.2)) == (first, LeftOut(5, 20, 0.2))
    assert with_gap((first,), LeftOut(0, 10, 0.5, True)) == (first, LeftOut(0, 10, 0.5, True))


def test_many_spans_are_fewer_that_say_less() -> None:
    spans: tuple[LeftOut, ...] = ()
    for n in range(3 * MOST):
        spans = with_gap(spans, LeftOut(100 * n, 100 * n + 1, 0.9 - n / 1000, universe=n == 7))
    assert len(spans) == MOST
    # The different one makes nothing known about the time span with which it is merged.
    assert spans[0].share == 0.0
    assert (spans[0].low, spans[-1].high) == (0, 100 * (3 * MOST - 1) + 1)

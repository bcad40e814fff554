"""Tests that a structured query (JSON) and its SQL are the same query."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch_planner.passes import parse_sql, parse_structured
from tests.support.cases.sample_streams import sample_streams

STREAMS = sample_streams()


@pytest.mark.parametrize(
    ("document", "sql"),
    [
        (
            {"from": ["R"], "where": ["x > 3"], "select": ["k"]},
            "SELECT k FROM R WHERE x > 3",
        ),
        ({"from": ["R"]}, "SELECT * FROM R"),
        (
            {"from": {"o": "R", "l": "S"}, "join": ["o.k = l.k"], "select": ["o.*"]},
            "SELECT o.* FROM R o JOIN S l ON o.k = l.k",
        ),
        (
            {
                "from": [{"stream": "R", "alias": "o"}, {"stream": "S", "alias": "l"}, "T"],
                "join": ["o.k = l.k", "T.x = l.x AND T.l = l.l"],
                "where": ["l.p > 5", "o.ts <= l.ts + INTERVAL 5 MINUTE", "o.s <> T.s"],
                "select": ["o.k", {"expr": "l.p * 2", "as": "double_price"}, "T.x + 1 AS y"],
            },
            "SELECT o.k, l.p * 2 AS double_price, T.x + 1 AS y FROM R o JOIN S l ON o.k = l.k"
            " JOIN T ON T.x = l.x AND T.l = l.l"
            " WHERE 5 < l.p AND o.ts <= l.ts + INTERVAL '5' MINUTE AND T.s <> o.s",
        ),
        (
            {"from": {"a": "R", "b": "R"}, "join": "a.k = b.k", "select": ["CAST(a.k AS STRING)"]},
            "SELECT CAST(a.k AS STRING) FROM R a, R b WHERE a.k = b.k",
        ),
    ],
)
def test_structured_equals_sql(document: dict[str, Any], sql: str) -> None:
    for window in (None, 60_000_000):
        structured = parse_structured("q", document, STREAMS, window)
        assert structured == parse_sql("q", sql, STREAMS, window)

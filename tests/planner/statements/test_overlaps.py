"""Compare ``OVERLAPS`` with the SQL standard's rules for limits in any order and NULL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pyarrow as pa

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_statement
from anabranch_runtime.expressions.evaluate import evaluate

_LIMITS = (None, *(datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in range(4)))


def _span(one: datetime | None, other: datetime | None) -> tuple[datetime | None, datetime | None]:
    """Return the known limit, or the earlier one, and the later limit; None: unknown."""
    if one is None or other is None:
        return one or other, None
    return min(one, other), max(one, other)


def _overlap(spans: tuple[datetime | None, ...]) -> bool | None:
    (begin, end), (start, stop) = _span(*spans[:2]), _span(*spans[2:])
    if begin is None or start is None:
        return None
    if start < begin:
        (begin, end), (start, stop) = (start, stop), (begin, end)
    if begin == start:
        return None if end is None or stop is None else True
    if end is not None:
        # The later span begins within the earlier one.
        return True if start < end else None if stop is None else False
    return None


def test_spans_with_limits_in_any_order_and_null() -> None:
    rows = list(product(_LIMITS, repeat=4))
    names = ("a", "b", "c", "d")
    kind = parse_type("timestamp")
    scope = Scope.of_stream("r", Stream(StreamName("r"), tuple((name, kind) for name in names)))
    columns = {
        name: pa.array([row[n] for row in rows], pa.timestamp("us", "UTC"))
        for n, name in enumerate(names)
    }
    texts = ("(a, b) OVERLAPS (c, d)", "(a, INTERVAL '-90' MINUTE) OVERLAPS (c, d)")
    moved = [(row[0], row[0] and row[0] - timedelta(minutes=90), *row[2:]) for row in rows]
    for text, given in zip(texts, (rows, moved), strict=True):
        item = parse_statement(f"SELECT {text} AS o FROM r").items[0].node
        assert item is not None
        found = evaluate(typed(item, scope), lambda one: columns[one.name], len(rows)).to_pylist()
        wrong = [one for one in zip(given, found, strict=True) if _overlap(one[0]) != one[1]]
        assert wrong == []

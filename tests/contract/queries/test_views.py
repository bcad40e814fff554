"""Tests of views' definitions: identities, columns of changes, and texts of aggregates
and windows.
"""

from __future__ import annotations

import pytest

from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import (
    GROUPING_ID,
    PLACE,
    RANK,
    AggregateFunction,
    RankFunction,
    TimeWindow,
    View,
    ViewAggregate,
    call_text,
    change_columns,
    window_text,
)

INT, BIGINT = DataType(TypeKind.INT), DataType(TypeKind.BIGINT)
F = AggregateFunction
HOUR = 3_600_000_000


def shown(*names: str) -> tuple[Output, ...]:
    return tuple(Output(name, Column("", name, INT)) for name in names)


def test_the_identity_of_groups_in_sets() -> None:
    keys = (("k1", INT), ("k2", INT))
    plain = View(True, keys, (), shown("k2"))
    assert plain.identity == ("anabranch_k1", "k2")
    sets = View(True, keys, (), shown("k2"), sets=((0, 1), ()))
    assert sets.identity == ("anabranch_k1", "k2", f"anabranch_{GROUPING_ID}")
    assert dict(change_columns(sets))[f"anabranch_{GROUPING_ID}"] == BIGINT
    windowed = View(
        True, keys, (), shown("k1", "k2"), window=TimeWindow("w", HOUR, HOUR), sets=((0,), ())
    )
    assert windowed.identity == (
        "k1",
        "k2",
        "anabranch_grouping_id",
        "anabranch_window_start",
        "anabranch_window_end",
    )


def test_the_identity_of_a_ranked_row() -> None:
    ranked = View(False, (), (), shown("c1"), limit=3, partition=(("c1", INT), ("c2", INT)))
    assert ranked.identity == ("c1", "anabranch_c2", RANK)
    assert [name for name, _ in change_columns(ranked)][:3] == ["c1", "anabranch_c2", RANK]
    assert ranked.ranked
    assert ranked.whole
    limited = View(False, (), (), shown("c1"), limit=3)
    assert limited.identity == (RANK,)
    assert not limited.ranked
    assert View(False, (), (), shown("c1"), limit=3, ranking=RankFunction.RANK).ranked
    assert View(False, (), (), shown("c1", PLACE), limit=3).ranked


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (ViewAggregate("g", F.COUNT, None, False, BIGINT), "count(*)"),
        (ViewAggregate("g", F.SUM, "a", True, BIGINT), "sum(DISTINCT t.x)"),
        (ViewAggregate("g", F.MAX_BY, "a", False, INT, "b"), "max_by(t.x, t.y)"),
        (
            ViewAggregate("g", F.PERCENTILE_DISC, "a", False, INT, None, "0.25", True),
            "percentile_disc(0.25) WITHIN GROUP (ORDER BY t.x DESC)",
        ),
        (
            ViewAggregate("g", F.LISTAGG, "a", False, INT, "b", "\\'", True),
            "listagg(t.x, '\\\\\\'') WITHIN GROUP (ORDER BY t.y DESC)",
        ),
    ],
)
def test_texts_of_aggregates(call: ViewAggregate, text: str) -> None:
    assert call_text(call, {"a": "t.x", "b": "t.y"}) == text


def test_texts_of_windows() -> None:
    assert (
        window_text(TimeWindow("w", 2 * HOUR, HOUR), "t.ts") == "window(t.ts, '2 hours', '1 hour')"
    )
    begun = TimeWindow("w", HOUR, HOUR, 60_000_000)
    assert window_text(begun, "t.ts") == "window(t.ts, '1 hour', '1 hour', '1 minute')"
    session = TimeWindow("w", HOUR, HOUR, session=True)
    assert window_text(session, "t.ts") == "session_window(t.ts, '1 hour')"

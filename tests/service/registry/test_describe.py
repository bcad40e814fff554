"""Descriptions of normalised queries."""

from __future__ import annotations

from dataclasses import replace

from anabranch_contract.queries.joins import StreamKind
from anabranch_planner.passes import parse_sql
from anabranch_service.registry.describe import describe
from tests.support.cases.sample_streams import stream

STREAMS = {
    str(found.name): found
    for found in (
        replace(
            stream("flights", {"carrier": "int", "tail": "int", "ts": "timestamp"}, "ts"),
            lateness=0,
        ),
        *(
            replace(stream(name, columns, None), kind=StreamKind.TABLE, retain=None)
            for name, columns in {
                "airlines": {"id": "int", "name": "string"},
                "planes": {"tail": "int", "airline": "int"},
            }.items()
        ),
    )
}
CHAIN = (
    " FROM flights f LEFT JOIN planes p ON p.tail = f.tail LEFT JOIN airlines a ON a.id = p.airline"
    " LEFT ANTI JOIN airlines b ON b.id = f.carrier WHERE a.name IS NULL OR f.tail > 3"
)


def test_look_ups_are_named() -> None:
    sql = f"SELECT f.carrier, a.name{CHAIN}"
    found = describe(parse_sql("q", sql, STREAMS), STREAMS)
    assert [(a.alias, a.stream) for a in found.aliases] == [
        ("f", "flights"),
        ("p", "planes"),
        ("a", "airlines"),
        ("b", "airlines"),
    ]
    assert found.outer is not None
    assert found.outer.deadline is None
    assert [(one.kind, one.partner) for one in found.outer.look_ups] == [
        ("left", "p"),
        ("left", "a"),
        ("anti", "b"),
    ]
    assert found.outer.where == ["((a.name IS NULL) OR (f.tail > 3))"]
    assert [o.name for o in found.output] == ["carrier", "name"]
    assert sum("is looked up" in note for note in found.notes) == 3


def test_windows_over_look_ups_are_let_go() -> None:
    sql = f"SELECT window(f.ts, '5 minutes').start AS s, count(*) AS n{CHAIN}"
    grouped = f"{sql} GROUP BY window(f.ts, '5 minutes')"
    inner = grouped.replace(" LEFT JOIN planes", " JOIN planes")
    assert not any("kept" in n for n in describe(parse_sql("q", inner, STREAMS), STREAMS).notes)
    found = describe(parse_sql("q", grouped, STREAMS), STREAMS)
    assert not any("kept" in note for note in found.notes), found.notes
    assert found.view is not None
    assert found.view.keys[0].startswith("window(f.ts")

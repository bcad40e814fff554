"""Tests of descriptions of normalised queries."""

from __future__ import annotations

from dataclasses import replace

from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import StreamKind
from anabranch_contract.rest.normalised import ViewInfo
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


def test_kept_outer_joins_say_that_they_emit_changes() -> None:
    sql = (
        "SELECT f.carrier FROM flights f LEFT JOIN (flights g JOIN flights h ON h.tail = g.tail) "
        "ON g.tail = f.tail LEFT SEMI JOIN flights i ON i.tail = f.tail"
    )
    found = describe(parse_sql("q", sql, STREAMS), STREAMS)
    assert found.outer is not None
    assert found.outer.changes
    assert [(o.kind, o.partner) for o in found.outer.look_ups] == [("left", "g"), ("semi", "i")]
    assert [o.name for o in found.output] == ["carrier", "anabranch_change"]
    first, second = (n for n in found.notes if "deletes" in n or "kept for ever" in n)
    assert "a row's first partner may come in any later batch" in first
    assert "left rows and pairs with their partners are kept for ever" in second
    view = parse_sql("q", "SELECT count(*) AS n" + sql.removeprefix("SELECT f.carrier"), STREAMS)
    assert any("rows below the view may be deleted" in n for n in describe(view, STREAMS).notes)


def test_asof_joins_show_both_sides_and_their_condition() -> None:
    sql = (
        "SELECT f.carrier, g.ts AS seen FROM flights f JOIN flights h ON h.tail = f.tail "
        "ASOF LEFT JOIN flights g ON g.tail = f.tail AND g.ts <= f.ts "
        "AND g.ts >= f.ts - INTERVAL '1' HOUR WHERE g.ts IS NOT NULL"
    )
    found = describe(parse_sql("q", sql, STREAMS), STREAMS)
    assert [a.alias for a in found.aliases] == ["f", "h", "g"]
    assert [c.members for c in found.classes] == [["h.tail", "f.tail"]]
    assert found.outer is not None
    assert found.outer.where == ["(g.ts IS NOT NULL)"]
    (one,) = found.outer.look_ups
    assert (one.join, one.partner) == ("asof left join", "g")
    assert one.nearest is not None
    assert one.nearest.startswith("(f.tail = g.tail) AND (f.ts >= g.ts) AND ")
    notes = [n for n in found.notes if "deletes" in n or "kept for ever" in n]
    assert "a row's nearest partner may come in any later batch" in notes[0]
    assert notes[1].startswith("left rows and right rows are kept for ever")


def test_windows_over_look_ups_are_let_go() -> None:
    sql = f"SELECT window(f.ts, '5 minutes').start AS s, count(*) AS n{CHAIN}"
    grouped = f"{sql} GROUP BY window(f.ts, '5 minutes')"
    inner = grouped.replace(" LEFT JOIN planes", " JOIN planes")
    assert not any("kept" in n for n in describe(parse_sql("q", inner, STREAMS), STREAMS).notes)
    found = describe(parse_sql("q", grouped, STREAMS), STREAMS)
    assert not any("kept" in note for note in found.notes), found.notes
    assert found.view is not None
    assert found.view.keys[0].startswith("window(f.ts")


ROWS = "FROM flights f JOIN flights g ON f.tail = g.tail"


def view_of(sql: str) -> ViewInfo:
    found = describe(parse_sql("q", sql, STREAMS, 10**9), STREAMS).view
    assert found is not None
    return found


def test_aggregates_are_shown_as_sql() -> None:
    calls = {
        "max_by(f.carrier, g.ts)": "max_by(f.carrier, g.ts)",
        "any_value(f.carrier)": "min(f.carrier)",
        "approx_count_distinct(f.carrier)": "count(DISTINCT f.carrier)",
        "median(f.carrier)": (
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY cast(f.carrier as double))"
        ),
        "listagg(DISTINCT CAST(f.tail AS STRING), '''')": (
            "listagg(DISTINCT cast(f.tail as string), '\\'') "
            "WITHIN GROUP (ORDER BY cast(f.tail as string))"
        ),
        "string_agg(CAST(f.tail AS STRING), '-' ORDER BY g.ts DESC)": (
            "listagg(cast(f.tail as string), '-') WITHIN GROUP (ORDER BY g.ts DESC)"
        ),
    }
    found = view_of(f"SELECT {', '.join(f'{c} AS c{i}' for i, c in enumerate(calls))} {ROWS}")
    assert found.aggregates == list(calls.values())


def test_grouping_sets_are_shown() -> None:
    found = view_of(
        f"SELECT f.carrier, count(*) AS n, grouping_id() AS i {ROWS} "
        "GROUP BY session_window(f.ts, '5 minutes'), ROLLUP (f.carrier, g.carrier) "
        "HAVING grouping_id() > 0"
    )
    assert found.sets == [["f.carrier", "g.carrier"], ["f.carrier"], []]
    assert found.keys[2:] == [
        "session_window(f.ts, '5 minutes').start",
        "session_window(f.ts, '5 minutes').end",
    ]
    assert found.having == "(grouping_id() > 0)"
    assert (found.partition, found.ranking) == ([], None)


def test_rankings_are_shown() -> None:
    over = "rank() OVER (PARTITION BY f.carrier ORDER BY g.ts DESC)"
    found = view_of(f"SELECT g.carrier AS c, {over} AS r {ROWS} QUALIFY r <= 2")
    assert (found.partition, found.ranking, found.limit) == (["f.carrier"], "rank", 2)
    assert found.order == ["g.ts DESC"]
    assert found.identity == ["anabranch_c2", "anabranch_rank"]
    assert [c.name for c in found.changes][:4] == ["c", "r", "anabranch_c2", "anabranch_rank"]
    assert view_of(f"SELECT f.tail {ROWS} ORDER BY g.ts LIMIT 3").ranking is None


def test_time_bounds_are_recommended_where_they_can_be() -> None:
    bikes = replace(
        stream("bikes", {"id": "int", "tail": "int"}, None),
        kind=StreamKind.UPSERT,
        changes=ChangeFormat(None, key=("id",)),
        retain=None,
    )
    streams = {**STREAMS, "bikes": bikes}

    def notes(source: str) -> list[str]:
        found = describe(parse_sql("q", f"SELECT b.id FROM {source}", streams), streams).notes
        return [note for note in found if "full history is kept" in note]

    current = "full history is kept: current rows of upserts and tables join rows of any age"
    same = "ON b.tail = {}.tail".format
    assert notes(f"bikes b JOIN bikes c {same('c')}") == [current]
    assert notes(f"bikes b JOIN flights f {same('f')}") == [current]
    assert notes(f"bikes b JOIN planes p {same('p')}") == [current]
    (found,) = notes(f"bikes b JOIN flights f {same('f')} JOIN flights g {same('g')}")
    assert found.startswith("no time bound limits how long tuples of f, g can join")

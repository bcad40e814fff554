"""Tests of binding outer, semi and anti joins as two inner joins and a deadline, and
of refusals.
"""

from __future__ import annotations

import pytest

from anabranch_contract import codec
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.expressions import Call, Column, columns
from anabranch_contract.queries.joins import ARRIVAL, JoinQuery, Stream, StreamKind, StreamName
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql

COLUMNS = tuple((c, parse_type(t)) for c, t in (("k", "int"), ("v", "int"), ("ts", "timestamp")))
STREAMS = {n: Stream(StreamName(n), COLUMNS, "ts", lateness=0) for n in ("a", "b", "c")}
STREAMS["late"] = Stream(StreamName("late"), COLUMNS, "ts")
STREAMS["timeless"] = Stream(StreamName("timeless"), COLUMNS)
STREAMS["changed"] = Stream(
    StreamName("changed"),
    COLUMNS,
    "ts",
    lateness=0,
    kind=StreamKind.CHANGES,
    changes=ChangeFormat(operation=None),
)
STREAMS["newest"] = Stream(StreamName("newest"), COLUMNS, "ts", lateness=0, latest=("k",))
HOUR = 3_600_000_000
SOON = "c.ts <= a.ts + INTERVAL '1' HOUR"


def parsed(sql: str, window: int | dict[str, int] | None = None) -> tuple[JoinQuery, OuterJoin]:
    query = parse_sql("q", sql, STREAMS, window)
    assert query.outer is not None
    assert codec.loads(codec.dumps(query.outer), OuterJoin) == query.outer
    return query, query.outer


def below(query: JoinQuery | None) -> dict[str, str]:
    assert query is not None
    return {o.name: str(o.expr) for o in query.projection}


def test_two_joins_are_planned() -> None:
    query, made = parsed(
        f"SELECT a.v, c.v AS w FROM a JOIN b USING (k) LEFT JOIN c ON c.k = b.k AND {SOON}"
    )
    assert query.planned == (query, query.left)
    assert query.left is not None
    assert query.left.id == "q+left"
    assert {m.alias for m in query.members} == {"a", "b", "c"}
    assert {m.alias for m in query.left.members} == {"a", "b"}
    assert below(query) == {"l1": "a.v", "l2": "b.k", "l3": "a.ts", "r1": "c.v"}
    assert below(query.left) == {"l1": "a.v", "l2": "b.k", "l3": "a.ts"}
    assert made.times == (("l3", HOUR),)
    assert [(o.name, str(o.expr)) for o in query.shown] == [("v", "l1"), ("w", "r1")]


@pytest.mark.parametrize(
    "joined",
    [
        f"a LEFT JOIN ({{}}) s ON s.k = a.k AND {SOON.replace('c.', 's.')}",
        "a LEFT JOIN ({}) s ON s.k = a.k",
        "({}) s RIGHT JOIN a ON s.k = a.k",
        "({}) s FULL JOIN a ON s.k = a.k",
        "a FULL JOIN ({}) s ON s.k = a.k",
        "a ASOF LEFT JOIN ({}) s ON s.k = a.k AND s.ts <= a.ts",
        "a LEFT JOIN changed b ON b.k = a.k LEFT JOIN ({}) s ON s.k = b.v",
        "a JOIN b ON b.k = a.k LEFT JOIN (({}) s JOIN b b2 ON b2.k = s.v) ON s.k = a.k",
    ],
)
@pytest.mark.parametrize("column", ["coalesce(c.v, 0)", "1", "c.v IS NULL", "c.v + 1"])
def test_columns_of_missing_rows_are_null(joined: str, column: str) -> None:
    """Columns of missing rows are computed when rows are present, unless they are NULL anyway."""
    side = f"SELECT c.k, c.v, c.ts, {column} AS x FROM c"
    query, made = parsed(f"SELECT a.v, s.x FROM {joined.format(side)}")
    shown = next(o for o in made.projection if o.name == "x").expr
    if column == "c.v + 1":
        assert isinstance(shown, Call)
        return
    assert isinstance(shown, Column)
    found = {o.name: str(o.expr) for join in query.planned for o in join.projection}
    assert found[shown.name].strip("()") == column.strip("()")


@pytest.mark.parametrize("words", ["LEFT SEMI JOIN", "SEMI JOIN", "left semi join"])
def test_a_semi_join_shows_left_columns_only(words: str) -> None:
    query, made = parsed(f"SELECT * FROM a {words} c ON c.k = a.k AND {SOON}")
    assert made.kind is JoinKind.SEMI
    assert [o.name for o in query.shown] == ["k", "v", "ts"]
    with pytest.raises(QueryError, match=r"no alias 'c'|no column"):
        parsed(f"SELECT c.v FROM a {words} c ON c.k = a.k AND {SOON}")


def test_a_right_join_is_a_mirrored_left_join() -> None:
    left = parsed(f"SELECT a.v, c.v AS w FROM a LEFT JOIN c ON c.k = a.k AND {SOON}")
    assert parsed(f"SELECT a.v, c.v AS w FROM c RIGHT JOIN a ON c.k = a.k AND {SOON}") == left


def test_conditions_on_one_side_stay_there() -> None:
    query, _ = parsed(
        f"SELECT a.v FROM a LEFT ANTI JOIN c ON c.k = a.k AND {SOON} AND c.v > 1 AND a.v > 2 "
        "WHERE a.k > 3"
    )
    assert query.left is not None
    (left,) = query.left.relations
    assert [str(f) for f in left.filter] == ["(k > 3)"]
    pairs = {r.stream: [str(f) for f in r.filter] for r in query.relations}
    assert pairs == {"a": ["(k > 3)", "(v > 2)"], "c": ["(v > 1)"]}


def test_windows_are_deadlines_too() -> None:
    _, made = parsed("SELECT a.v FROM a JOIN b USING (k) LEFT ANTI JOIN c USING (k)", HOUR)
    assert {micros for _, micros in made.times} == {HOUR}
    _, made = parsed("SELECT a.v FROM a LEFT ANTI JOIN c USING (k)", {"a": HOUR, "c": 0})
    assert made.times == ((made.left[-1][0], HOUR),)


def test_the_partner_may_be_a_query_over_one_stream() -> None:
    query, _ = parsed(
        "SELECT a.v, x.w FROM a LEFT JOIN (SELECT k, v + 1 AS w, ts FROM c WHERE v > 0) AS x "
        "ON x.k = a.k AND x.ts <= a.ts + INTERVAL '1' HOUR"
    )
    assert below(query)["r1"] == "c[" + query.relations[1].id.removeprefix("c[") + ".v"


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        (f"SELECT a.v FROM a LEFT JOIN c ON {SOON}", "no-equi-join"),
        ("SELECT v FROM a WHERE (k, v) IN (SELECT k FROM b)", "unsupported-sql"),
        ("SELECT v FROM a WHERE k IN (SELECT * FROM b)", "unsupported-sql"),
        ("SELECT a.v FROM a FULL JOIN c ON c.k = a.k LEFT JOIN b ON b.k = a.k", "unsupported-sql"),
        (f"SELECT a.k FROM a LEFT JOIN c ON c.k = a.k AND {SOON} GROUP BY a.k "
         "HAVING count(*) > (SELECT count(*) FROM a)", "unsupported-sql"),
        (f"SELECT a.v, c.k AS v FROM a LEFT JOIN c ON c.k = a.k AND {SOON}", "duplicate-name"),
        ("SELECT x.v FROM (SELECT a.v FROM a LEFT JOIN c USING (k)) AS x", "unsupported-sql"),
        ("SELECT a.v FROM a LEFT JOIN b ON b.k = a.k RIGHT JOIN c ON c.k = b.k", "unsupported-sql"),
        ("SELECT a.v FROM a LEFT JOIN c ON c.k = a.k LEFT JOIN b ON b.k = a.k AND b.v > c.v",
         "unsupported-sql"),
        ("SELECT a.v FROM a LEFT JOIN c ON c.k = a.k LEFT JOIN (SELECT k AS x FROM b) ON x = a.k",
         "unsupported-sql"),
        ("SELECT a.v AS anabranch_change FROM a LEFT JOIN c USING (k)", "duplicate-name"),
    ],
)  # fmt: skip
def test_what_is_refused(sql: str, code: str) -> None:
    with pytest.raises(QueryError) as found:
        parse_sql("q", sql, STREAMS)
    assert found.value.code == code
    assert found.value.remedy


def test_a_view_is_over_the_rows_of_the_join() -> None:
    query, made = parsed(
        f"SELECT a.k % 2 AS g, count(c.v) AS n FROM a LEFT JOIN c ON c.k = a.k AND {SOON} "
        "GROUP BY a.k % 2 HAVING sum(a.v + c.v) > 3"
    )
    assert query.view is not None
    assert [o.name for o in query.shown] == ["g", "n"]
    assert [str(o.expr) for o in made.projection] == ["(l1 % 2)", "r1", "(l2 + r1)"]
    assert [o.name for o in made.projection] == ["k1", "a1", "a2"]
    assert query.left is not None
    assert query.left.view is None


def test_where_reads_no_hidden_side() -> None:
    sql = f"SELECT a.v FROM a\nLEFT ANTI JOIN c AS x ON x.k = a.k AND {SOON.replace('c.', 'x.')} "
    with pytest.raises(QueryError) as found:
        parse_sql("q", f"{sql}WHERE x.v > 1", STREAMS)
    error = found.value
    assert (error.code, error.field, error.position) == ("unsupported-sql", "sql", (2, 79))
    assert error.message == "x.v > 1 in WHERE after a LEFT ANTI JOIN of x is not supported"
    assert error.remedy == "move it to the ON of the LEFT ANTI JOIN"


def kept(sql: str, window: int | dict[str, int] | None = None) -> OuterJoin:
    made = parsed(sql, window)[1]
    assert made.kept
    assert made.times == ()
    return made


def steps(made: OuterJoin) -> list[tuple[str, str, int]]:
    return [(str(one.kind), one.partner, one.parent) for one in made.look_ups]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.v FROM a LEFT JOIN c USING (k)",
        "SELECT a.v FROM a LEFT JOIN c ON c.k = a.k AND c.ts >= a.ts",
        f"SELECT a.v FROM a LEFT JOIN late c ON c.k = a.k AND {SOON}",
        "SELECT a.v FROM a LEFT JOIN timeless c USING (k)",
        "SELECT a.v FROM c RIGHT JOIN a ON c.k = a.k",
        f"SELECT a.v FROM a LEFT JOIN changed c ON c.k = a.k AND {SOON}",
        f"SELECT a.v FROM changed a LEFT JOIN c ON c.k = a.k AND {SOON}",
        f"SELECT a.v FROM a LEFT JOIN c ON c.k = a.k AND {SOON} WHERE c.v IS NULL",
    ],
)
def test_left_rows_without_deadline_are_kept(sql: str) -> None:
    made = kept(sql)
    ((kind, _, parent),) = steps(made)
    assert (kind, parent) == ("left", 0)
    assert [o.name for o in made.projection] == ["v", "anabranch_change"]


def test_kept_rows_have_weights() -> None:
    query, made = parsed("SELECT a.v, c.v AS w FROM changed a LEFT JOIN c USING (k)")
    assert below(query) == {
        "l1": "changed.v",
        "l2": "changed.k",
        "r1": "c.v",
        "anabranch_weight": "cast(changed.#weight as bigint)",
    }
    assert below(query.left)["anabranch_weight"] == "cast(changed.#weight as bigint)"
    _, made = parsed("SELECT a.v, count(c.v) AS n FROM a LEFT JOIN c USING (k) GROUP BY a.v")
    assert [o.name for o in made.projection][-1] == "anabranch_weight"


@pytest.mark.parametrize(
    ("sql", "wanted", "left"),
    [
        (
            "SELECT a.v FROM a LEFT JOIN c ON c.k = a.k LEFT JOIN b ON b.v = c.v",
            [("left", "c", 0), ("left", "b", 1)],
            ["a"],
        ),
        (
            "SELECT a.v FROM a LEFT JOIN c ON c.k = a.k JOIN b ON b.v = a.v",
            [("left", "c", 0)],
            ["a", "b"],
        ),
        (
            "SELECT a.v FROM a LEFT JOIN c ON c.k = a.k, b WHERE b.v = a.v",
            [("left", "c", 0)],
            ["a", "b"],
        ),
        (
            "SELECT a.v FROM a LEFT JOIN c ON c.k = a.k JOIN b ON b.v = c.v",
            [("left", "c", 0), ("inner", "b", 1)],
            ["a"],
        ),
        (
            "SELECT a.v FROM a JOIN b USING (k) RIGHT JOIN c ON c.k = a.k",
            [("left", "a", 0)],
            ["c"],
        ),
        (
            "SELECT a.v FROM a LEFT JOIN (b JOIN c ON c.k = b.k) ON c.k = a.k",
            [("left", "b", 0)],
            ["a"],
        ),
        (
            "SELECT c.v FROM a RIGHT JOIN c ON c.k = a.k LEFT SEMI JOIN b ON b.k = c.k",
            [("left", "a", 0), ("semi", "b", 0)],
            ["c"],
        ),
        ("SELECT v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE k = a.v)", [("semi", "b", 0)], ["a"]),
        ("SELECT v FROM a WHERE k IN (SELECT v FROM b)", [("semi", "b", 0)], ["a"]),
        ("SELECT v FROM a WHERE k IN (SELECT DISTINCT v FROM b)", [("semi", "b", 0)], ["a"]),
        ("SELECT v FROM a WHERE (k, v) IN (SELECT v, k FROM b)", [("semi", "b", 0)], ["a"]),
        ("SELECT v FROM a WHERE k IN (SELECT k FROM a WHERE v > 1)", [("semi", "a", 0)], ["a"]),
        (
            "SELECT v FROM a WHERE k IS NOT NULL"
            " AND k NOT IN (SELECT v FROM b WHERE v IS NOT NULL)",
            [("anti", "b", 0)],
            ["a"],
        ),
        (
            "SELECT v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) "
            "AND NOT EXISTS (SELECT 1 FROM c WHERE c.k = a.k)",
            [("semi", "b", 0), ("anti", "c", 0)],
            ["a"],
        ),
    ],
)
def test_chains(sql: str, wanted: list[tuple[str, str, int]], left: list[str]) -> None:
    query, _ = parsed(sql)
    assert steps(kept(sql)) == wanted
    assert query.left is not None
    assert [m.alias for m in query.left.members] == left


def test_subqueries_name_known_streams() -> None:
    with pytest.raises(QueryError) as found:
        parse_sql(
            "q", "SELECT a.v FROM a WHERE EXISTS (SELECT 1 FROM bb x WHERE x.k = a.k)", STREAMS
        )
    assert (found.value.code, found.value.remedy) == ("unknown-stream", "did you mean 'b'?")


def test_a_full_join_has_right_rows() -> None:
    sql = f"SELECT a.v, c.v AS w FROM a FULL JOIN c ON c.k = a.k AND {SOON} AND c.v > 1 AND a.v > 2"
    query, made = parsed(f"{sql} WHERE a.v > 3")
    assert steps(made) == [("full", "c", 0)]
    assert [str(e) for e in made.where] == ["(l1 > 3)"]
    (right,) = query.others
    assert (right.id, [m.alias for m in right.members]) == ("q+2", ["c"])
    assert below(right) == {"r1": "c.v", "r2": "c.k", "r3": "c.ts", "anabranch_weight": "1"}
    # Conditions of ON exclude partners, but no rows of either side.
    assert all(not r.filter for part in query.planned for r in part.relations)


def test_an_inner_join_of_left_rows_leaves_the_deadline() -> None:
    made = parsed(
        f"SELECT a.v, b.v AS w FROM a LEFT JOIN c ON c.k = a.k AND {SOON} JOIN b ON b.k = a.k"
    )
    after = f"SELECT a.v, b.v AS w FROM a JOIN b ON b.k = a.k LEFT JOIN c ON c.k = a.k AND {SOON}"
    assert made == parsed(after)
    assert not made[1].kept


def test_in_compares_with_the_stream_of_the_subquery() -> None:
    own = "SELECT v FROM a WHERE k IN (SELECT k FROM a WHERE a.v > 1)"
    other = "SELECT v FROM a LEFT SEMI JOIN a AS a_ ON a.k = a_.k AND a_.v > 1"
    assert parsed(own) == parsed(other)


def test_not_in_needs_a_part_unless_values_are_not_null() -> None:
    for sql in (
        "SELECT v FROM a WHERE k NOT IN (SELECT v FROM b)",
        "SELECT v FROM a WHERE k NOT IN (SELECT v FROM b WHERE v IS NOT NULL)",
        "SELECT v FROM a WHERE k IS NOT NULL AND NOT (k IN (SELECT v FROM b))",
        "SELECT v FROM a WHERE v IS NOT NULL AND k NOT IN (SELECT v FROM b WHERE v IS NOT NULL)",
    ):
        with pytest.raises(QueryError, match="an aggregate in a subquery"):
            parse_sql("q", sql, STREAMS)
    both = "k IS NOT NULL AND k NOT IN (SELECT v FROM b WHERE v IS NOT NULL)"
    anti = "LEFT ANTI JOIN b ON b.v = a.k AND b.v IS NOT NULL WHERE a.k IS NOT NULL"
    assert parsed(f"SELECT v FROM a WHERE {both}") == parsed(f"SELECT a.v FROM a {anti}")


def hidden(query: JoinQuery) -> list[list[str]]:
    """Return the labels of the arrival numbers in the rows of each join."""
    read = [[c for o in one.projection for c in columns(o.expr)] for one in query.planned]
    return [[c.alias for c in some if c.name == ARRIVAL] for some in read]


def test_rows_beside_the_latest_rows_are_kept_by_their_arrival() -> None:
    query, outer = parsed(
        "SELECT a.v, c.v AS w, b.v AS x FROM a LEFT JOIN newest c ON c.k = a.k "
        "LEFT JOIN b ON b.k = c.k"
    )
    assert outer.kept
    assert hidden(query) == [["a", "newest"], ["a"], ["a", "newest"]]
    full, _ = parsed("SELECT a.v FROM a FULL JOIN newest c ON c.k = a.k")
    assert hidden(full) == [["a", "newest"], ["a"], ["newest"]]
    for accepted in (f"newest c ON c.k = a.k AND {SOON}", "b ON b.k = a.k"):
        query, _ = parsed(f"SELECT a.v FROM a LEFT JOIN {accepted}")
        assert not any(hidden(query))


def test_changes_beside_the_latest_rows_are_not_kept() -> None:
    for joins in (
        "changed a LEFT JOIN newest c ON c.k = a.k",
        "newest a FULL JOIN changed c ON c.k = a.k",
        "a LEFT JOIN changed b ON b.k = a.k LEFT JOIN newest c ON c.k = a.k",
    ):
        with pytest.raises(QueryError) as found:
            parse_sql("q", f"SELECT a.v FROM {joins}", STREAMS)
        assert found.value.code == "changes-beside-latest"


def test_relations_of_a_chain_are_those_of_its_parent() -> None:
    query, _ = parsed(
        "SELECT a.v, b.v AS w FROM a LEFT JOIN c ON c.k = a.k LEFT JOIN b ON b.k = c.k AND c.v > 3"
    )
    relations = [
        {m.alias: part.relation_of(m.label) for m in part.members}
        for part in (query, *query.others)
    ]
    assert relations[0]["c"] == relations[1]["c"]

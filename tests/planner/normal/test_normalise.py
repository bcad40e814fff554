"""Tests of the normal form of SQL: relations, labels, key classes, bounds,
residuals, projection.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.queries.joins import JoinQuery, needed_columns
from anabranch_planner.passes import parse_sql
from tests.support.cases.sample_streams import sample_streams, stream

STREAMS = sample_streams()
MINUTE = 60_000_000


def query(sql: str, window: int | dict[str, int] | None = None) -> JoinQuery:
    return parse_sql("q", sql, STREAMS, window)


def classes(q: JoinQuery) -> list[tuple[str, list[str]]]:
    return [(c.type, [str(m) for m in c.members]) for c in q.classes]


def filters(q: JoinQuery, index: int = 0) -> list[str]:
    return [str(f) for f in q.relation_of(q.members[index].label).filter]


def residuals(q: JoinQuery) -> list[str]:
    return [str(r) for r in q.residuals]


def outputs(q: JoinQuery) -> list[tuple[str, str, str]]:
    return [(o.name, str(o.expr), str(o.expr.type)) for o in q.projection]


# --- FROM, names, labels -----------------------------------------------------------------------


def test_a_chain_of_joins() -> None:
    q = query("SELECT R.k, T.x FROM R JOIN S ON R.k = S.k JOIN T ON S.x = T.x")
    assert q.labels == ("R", "S", "T")
    assert classes(q) == [("bigint", ["R.k", "S.k"]), ("bigint", ["S.x", "T.x"])]
    assert [(str(p.left), str(p.right)) for p in q.predicates] == [("R.k", "S.k"), ("S.x", "T.x")]
    assert outputs(q) == [("k", "R.k", "int"), ("x", "T.x", "int")]
    assert q.bounds == ((0, None, None), (None, 0, None), (None, None, 0))
    assert q.residuals == ()
    assert q.derived == ()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT R.k FROM R INNER JOIN S ON R.k = S.k",
        "SELECT R.k FROM R, S WHERE R.k = S.k",
        "SELECT R.k FROM R CROSS JOIN S WHERE S.k = R.k",
        "select r.K as k from r join s on ((R.K == S.k))",
        "SELECT `R`.`k` FROM R JOIN S USING (k)",
        "SELECT k FROM R JOIN S USING (K)",
        "SELECT R.k FROM R JOIN S WHERE R.k = S.k AND TRUE AND 1 = 1",
        "(SELECT R.k FROM R JOIN S ON R.k = S.k);",
        "SELECT R.k /* key */ FROM R JOIN S ON R.k = S.k -- done",
        "SELECT R.k FROM R JOIN S ON R.k = S.k AND S.k = R.k",
    ],
)
def test_spellings_of_one_join_are_equal(sql: str) -> None:
    q = query(sql)
    plain = query("SELECT R.k FROM R JOIN S ON R.k = S.k")
    assert (q.labels, q.relations, q.predicates, q.classes, q.bounds, q.projection) == (
        plain.labels,
        plain.relations,
        plain.predicates,
        plain.classes,
        plain.bounds,
        plain.projection,
    )


def test_a_single_relation_has_no_predicates() -> None:
    q = query("SELECT x FROM R WHERE x > 3", 5 * MINUTE)
    assert q.predicates == ()
    assert q.classes == ()
    assert q.bounds == ((0,),)
    assert filters(q) == ["(x > 3)"]


def test_a_self_join_numbers_equal_relations_in_from_order() -> None:
    q = query("SELECT a.k FROM R a JOIN R b ON a.k = b.k JOIN R c ON b.x = c.x WHERE b.x > 1")
    plain, filtered = q.members[0].relation, q.members[1].relation
    assert plain == "R"
    assert [str(label) for label in q.labels] == [plain, filtered, "R#1"]
    assert [m.alias for m in q.members] == ["a", "b", "c"]
    assert [r.id for r in q.relations] == [plain, filtered]
    same = query("SELECT a.k FROM R a JOIN R b ON a.k = b.k")
    assert same.labels == ("R", "R#1")


def test_names_ignore_case_and_resolve_to_the_declared_spelling() -> None:
    q = query("SELECT T.KEY, `a b` FROM t WHERE kEy > 1")
    assert [o.name for o in q.projection] == ["KEY", "a b"]
    assert needed_columns(q, q.labels[0]) == {"Key", "a b"}
    assert filters(q) == ["(Key > 1)"]


def test_star_and_using() -> None:
    streams = {
        "A": stream("A", {"k": "int", "x": "int"}),
        "B": stream("B", {"y": "int", "K": "int"}),
        "C": stream("C", {"z": "int", "k": "int"}),
    }
    q = parse_sql("q", "SELECT * FROM A JOIN B USING (k) JOIN C USING (k)", streams)
    assert [(o.name, str(o.expr)) for o in q.projection] == [
        ("k", "A.k"),
        ("x", "A.x"),
        ("y", "B.y"),
        ("z", "C.z"),
    ]
    assert [str(m) for m in q.classes[0].members] == ["A.k", "B.K", "C.k"]
    q = parse_sql("q", "SELECT B.*, x AS other FROM A JOIN B USING (k)", streams)
    assert [(o.name, str(o.expr)) for o in q.projection] == [
        ("y", "B.y"),
        ("K", "B.K"),
        ("other", "A.x"),
    ]


# --- key classes -------------------------------------------------------------------------------


def test_classes_are_closed_transitively() -> None:
    q = query("SELECT R.k FROM R JOIN S ON R.k = S.x JOIN T ON T.l = R.k")
    assert classes(q) == [("bigint", ["R.k", "S.x", "T.l"])]
    assert len(q.predicates) == 2


@pytest.mark.parametrize(
    ("condition", "type_", "members"),
    [
        ("R.k = S.l", "bigint", ["R.k", "S.l"]),
        ("R.k = S.p", "decimal(38,2)", ["R.k", "S.p"]),
        ("R.l = S.w", "decimal(38,18)", ["R.l", "S.w"]),
        ("R.g = S.g", "double", ["R.g", "S.g"]),
        ("R.s = S.s", "string", ["R.s", "S.s"]),
        ("R.day = S.day", "date", ["R.day", "S.day"]),
        ("R.k = S.g", "double", ["R.cast(k as double)", "S.g"]),
        ("R.g = S.p", "double", ["R.g", "S.cast(p as double)"]),
        ("CAST(R.k AS STRING) = S.s", "string", ["R.cast(k as string)", "S.s"]),
        ("R.x + 1 = S.k", "bigint", ["R.(x + 1)", "S.k"]),
        ("lower(R.s) = upper(S.s)", "string", ["R.lower(s)", "S.upper(s)"]),
        ("CAST(R.ts AS DATE) = S.day", "date", ["R.cast(ts as date)", "S.day"]),
    ],
)
def test_key_types(condition: str, type_: str, members: list[str]) -> None:
    q = query(f"SELECT R.k FROM R JOIN S ON {condition}")
    assert classes(q) == [(type_, members)]
    assert q.residuals == ()
    texts = {m.split(".", 1)[1] for m in members if "(" in m}
    assert {text for _, text, _ in q.derived} == texts


def test_derived_attributes_carry_their_expression() -> None:
    q = query("SELECT R.k FROM R JOIN S ON R.x + 1 = S.k")
    ((stream_name, text, expr),) = q.derived
    assert (stream_name, text, str(expr)) == ("R", "(x + 1)", "(x + 1)")
    assert str(expr.type) == "int"


def test_a_number_that_meets_a_float_leaves_its_exact_class_alone() -> None:
    q = query("SELECT R.k FROM R JOIN S ON R.k = S.k JOIN T ON T.g = R.k")
    assert classes(q) == [
        ("double", ["R.cast(k as double)", "T.g"]),
        ("bigint", ["R.k", "S.k"]),
    ]


def test_attributes_that_become_equal_filter_their_relation() -> None:
    q = query("SELECT R.k FROM R JOIN S ON R.k = S.k AND R.l = S.k")
    assert filters(q) == ["(l = cast(k as bigint))"]
    label = q.labels[0]
    assert classes(q) == [("bigint", [f"{label}.k", f"{label}.l", "S.k"])]
    other = query("SELECT R.k FROM R JOIN S ON R.l = S.k WHERE R.l = R.k")
    assert other.relations == q.relations
    assert other.classes == q.classes


def test_an_equality_within_one_alias_is_a_local_filter() -> None:
    q = query("SELECT R.k FROM R JOIN S ON R.k = S.k WHERE S.x = S.l")
    assert classes(q) == [("bigint", ["R.k", f"{q.labels[1]}.k"])]
    assert len(filters(q, 1)) == 1
    assert len(q.predicates) == 1


def test_a_column_equal_to_itself_must_not_be_null() -> None:
    assert filters(query("SELECT k FROM R WHERE k = k")) == ["(k = k)"]


# --- filters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x > 5", ["(x > 5)"]),
        ("5 < x", ["(x > 5)"]),
        ("NOT x <= 5", ["(x > 5)"]),
        ("NOT (NOT (x > 5))", ["(x > 5)"]),
        ("x BETWEEN 1 AND 3", ["(x <= 3)", "(x >= 1)"]),
        ("NOT x BETWEEN 1 AND 3", ["NOT(((x <= 3) AND (x >= 1)))"]),
        ("x IN (3, 1, 3)", ["IN(x, 1, 3)"]),
        ("x IN (3)", ["(x = 3)"]),
        ("x NOT IN (1)", ["(x <> 1)"]),
        ("x IN (k, l)", ["((k = x) OR (l = cast(x as bigint)))"]),
        ("x IS NULL", ["(x IS NULL)"]),
        ("x IS NOT NULL", ["(x IS NOT NULL)"]),
        ("s LIKE 'a%'", ["(s LIKE 'a%')"]),
        ("s NOT LIKE 'a%'", ["NOT((s LIKE 'a%'))"]),
        ("s = 'it''s'", ["(s = 'it''s')"]),
        ("x <=> 3", ["(x <=> 3)"]),
        ("x = 3 OR k = 2", ["((k = 2) OR (x = 3))"]),
        ("k = 2 OR x = 3", ["((k = 2) OR (x = 3))"]),
        ("x > 5 AND 5 < x", ["(x > 5)"]),
        ("x = '7'", ["(x = 7)"]),
        ("l = 7", ["(l = 7)"]),
        ("x = 5000000000", ["(cast(x as bigint) = 5000000000)"]),
        ("x = -5", ["(x = -5)"]),
        ("p > 5", ["(p > 5.00)"]),
        ("p > 1.5", ["(p > 1.50)"]),
        ("g > 1.5", ["(g > 1.5)"]),
        ("g > 1", ["(g > 1.0)"]),
        ("x > 1.5", ["(cast(x as decimal(11,1)) > 1.5)"]),
        ("day = '2020-01-02'", ["(day = date'18263')"]),
        ("day >= DATE '1970-01-02'", ["(day >= date'1')"]),
        ("ts < '1970-01-01 00:00:01.5'", ["(ts < timestamp'1500000')"]),
        ("ts < TIMESTAMP '1970-01-01T01:00:00+01:00'", ["(ts < timestamp'0')"]),
        ("ts >= DATE '1970-01-02'", ["(ts >= timestamp'86400000000')"]),
        ("TRUE", []),
        ("1 = 1", []),
        ("FALSE", ["false"]),
        ("1 = 2", ["false"]),
        ("NULL", ["NULL"]),
        ("x = NULL", ["(x = NULL)"]),
        ("(x > 1) IS TRUE", ["((x > 1) <=> true)"]),
        ("year(ts) = 2020", ["(year(ts) = 2020)"]),
        ("x % 2 = 0", ["((x % 2) = 0)"]),
        ("x / 2 > 1", ["((cast(x as double) / 2.0) > 1.0)"]),
        ("CASE WHEN x > 1 THEN 'a' ELSE s END = 'a'", ["(CASE((x > 1), 'a', s) = 'a')"]),
        ("coalesce(x, 0) = 0", ["(coalesce(x, 0) = 0)"]),
        ("x::STRING = '1'", ["(cast(x as string) = '1')"]),
        ("s || 'b' = 'ab'", ["(concat(s, 'b') = 'ab')"]),
        (
            "ts + INTERVAL 1 HOUR > '1970-01-01'",
            ["((ts + INTERVAL '0 01:00:00' DAY TO SECOND) > timestamp'0')"],
        ),
    ],
)
def test_local_filters(condition: str, expected: list[str]) -> None:
    assert filters(query(f"SELECT k FROM R WHERE {condition}")) == expected


def test_conditions_that_mean_the_same_name_the_same_relation() -> None:
    one = query("SELECT k FROM R WHERE 5 < x AND s = 'a'")
    two = query("SELECT r.k FROM R r WHERE r.s = 'a' AND r.x > 5 AND NOT r.x <= 5")
    assert one.relations == two.relations


def test_constants_are_not_propagated_through_a_class() -> None:
    q = query("SELECT R.k FROM R JOIN S ON R.k = S.k WHERE R.k = 5")
    assert filters(q, 0) == ["(k = 5)"]
    assert filters(q, 1) == []


def test_a_false_constant_filters_the_first_alias() -> None:
    q = query("SELECT R.k FROM R JOIN S ON R.k = S.k WHERE 1 > 2")
    assert filters(q, 0) == ["false"]
    assert filters(q, 1) == []


# --- residuals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("R.x < S.x", "(R.x < S.x)"),
        ("S.x > R.x", "(R.x < S.x)"),
        ("R.x <> S.x", "(R.x <> S.x)"),
        ("R.x <=> S.x", "(R.x <=> S.x)"),
        ("R.x + S.x = 3", "((R.x + S.x) = 3)"),
        ("R.x = 1 OR S.x = 1", "((R.x = 1) OR (S.x = 1))"),
        ("R.s LIKE 'a%' OR S.s LIKE 'a%'", "((R.s LIKE 'a%') OR (S.s LIKE 'a%'))"),
        ("R.x BETWEEN 0 AND S.x", "(R.x <= S.x)"),
    ],
)
def test_residuals(condition: str, expected: str) -> None:
    q = query(f"SELECT R.k FROM R JOIN S ON R.k = S.k WHERE {condition}")
    residual_labels = [
        text.replace(q.labels[0], "R").replace(q.labels[1], "S") for text in residuals(q)
    ]
    assert residual_labels == [expected]


# --- time bounds -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "s_after_r", "r_after_s"),
    [
        ("S.ts <= R.ts + INTERVAL '5' MINUTE", 5 * MINUTE, None),
        ("S.ts < R.ts + INTERVAL '5' MINUTE", 5 * MINUTE - 1, None),
        ("R.ts + INTERVAL 5 MINUTES >= S.ts", 5 * MINUTE, None),
        ("R.ts > S.ts - INTERVAL '5 minutes'", 5 * MINUTE - 1, None),
        ("S.ts - R.ts <= INTERVAL '5' MINUTE", 5 * MINUTE, None),
        ("INTERVAL '5' MINUTE >= S.ts - R.ts", 5 * MINUTE, None),
        ("S.ts >= R.ts", None, 0),
        ("S.ts > R.ts", None, -1),
        ("S.ts - INTERVAL '1:30' HOUR TO MINUTE > R.ts", None, -90 * MINUTE - 1),
        ("S.ts <= R.ts + INTERVAL 1 HOUR 30 MINUTES", 90 * MINUTE, None),
        ("S.ts <= R.ts + INTERVAL '1 0:00:00.5' DAY TO SECOND", 1440 * MINUTE + 500_000, None),
        ("S.ts <= R.ts + INTERVAL '-5' MINUTE", -5 * MINUTE, None),
        ("S.ts <= R.ts - INTERVAL 5 MINUTE", -5 * MINUTE, None),
        ("S.ts <= R.ts + -INTERVAL 5 MINUTE", -5 * MINUTE, None),
        (
            "S.ts BETWEEN R.ts - INTERVAL '5' MINUTE AND R.ts + INTERVAL '10' MINUTE",
            10 * MINUTE,
            5 * MINUTE,
        ),
        ("S.ts - R.ts BETWEEN INTERVAL '0' SECOND AND INTERVAL '10' SECOND", MINUTE // 6, 0),
        ("S.ts - R.ts = INTERVAL '1' MINUTE", MINUTE, -MINUTE),
        ("CAST(S.ts AS TIMESTAMP_NTZ) <= CAST(R.ts AS TIMESTAMP_NTZ)", 0, None),
    ],
)
def test_time_bounds(condition: str, s_after_r: int | None, r_after_s: int | None) -> None:
    q = query(f"SELECT R.k FROM R JOIN S ON R.k = S.k AND {condition}")
    assert q.bounds == ((0, s_after_r), (r_after_s, 0))
    assert q.residuals == ()
    assert classes(q) == [("bigint", ["R.k", "S.k"])]


def test_equal_event_times_are_both_a_bound_and_a_key() -> None:
    q = query("SELECT R.k FROM R JOIN S ON R.ts = S.ts")
    assert q.bounds == ((0, 0), (0, 0))
    assert classes(q) == [("timestamp", ["R.ts", "S.ts"])]
    q = query("SELECT R.k FROM R JOIN S ON R.ts = S.ts + INTERVAL 1 MINUTE")
    assert q.bounds == ((0, -MINUTE), (MINUTE, 0))
    assert classes(q) == [("timestamp", ["R.ts", "S.(ts + INTERVAL '0 00:01:00' DAY TO SECOND)"])]


@pytest.mark.parametrize(
    "condition",
    [
        "R.ts <= S.ts + INTERVAL 1 MINUTE OR R.x = S.x",
        "R.day <= S.day",
        "NOT (R.ts <= S.ts AND S.ts <= R.ts)",
        "R.ts <= plain.ts",
        "R.ts <=> S.ts",
        "R.ts <> S.ts",
        "R.ts - S.ts <= S.ts - R.ts",
    ],
)
def test_other_conditions_on_times_are_residuals(condition: str) -> None:
    q = query(
        "SELECT R.k FROM R JOIN S ON R.k = S.k JOIN plain ON plain.k = R.k WHERE " + condition
    )
    assert q.bounds == ((0, None, None), (None, 0, None), (None, None, 0))
    assert len(q.residuals) == 1


def test_an_event_time_against_a_literal_is_a_local_filter() -> None:
    q = query("SELECT R.k FROM R JOIN S ON R.k = S.k WHERE R.ts >= TIMESTAMP '1970-01-01'")
    assert filters(q) == ["(ts >= timestamp'0')"]
    assert q.bounds == ((0, None), (None, 0))


def test_windows_combine_with_conditions_and_close() -> None:
    sql = "SELECT R.k FROM R JOIN S ON R.k = S.k JOIN T ON T.k = S.k WHERE S.ts <= R.ts"
    q = query(sql, 5)
    assert q.bounds == ((0, 0, 5), (5, 0, 5), (5, 5, 0))
    q = query(sql, {"s": 7})
    assert q.bounds == ((0, 0, 7), (7, 0, 7), (None, None, 0))


# --- projection --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "name", "type_"),
    [
        ("key + 1", "(key + 1)", "int"),
        ("p * p", "(p * p)", "decimal(21,4)"),
        ("w / w", "(w / w)", "decimal(38,6)"),
        ("CAST(key AS STRING)", "key", "string"),
        ("CAST(key + 1 AS STRING)", "CAST((key + 1) AS STRING)", "string"),
        ("1e0 AS one", "one", "double"),
        ("-2147483648 AS least", "least", "int"),
        ("'it''s'", "it's", "string"),
        ("substr(name, 2)", "substr(name, 2, 2147483647)", "string"),
    ],
)
def test_projected_items(item: str, name: str, type_: str) -> None:
    ((found, _, kind),) = outputs(query(f"SELECT {item} FROM t"))
    assert (found, kind) == (name, type_)


# --- canonical form ----------------------------------------------------------------------------

CONJUNCTS = (
    "R.k = S.k",
    "S.x = T.x",
    "T.l = R.k",
    "R.x > 5",
    "3 < S.l",
    "R.s = 'a'",
    "R.ts <= S.ts + INTERVAL 1 HOUR",
    "T.ts BETWEEN S.ts AND S.ts + INTERVAL 5 MINUTE",
    "R.g < T.g",
    "(R.s <> S.s OR T.s = 'x')",
    "R.x = R.l",
)


@given(st.permutations(CONJUNCTS), st.integers(0, len(CONJUNCTS)))
def test_the_order_of_conjuncts_leaves_no_trace(order: list[str], cut: int) -> None:
    plain = query("SELECT R.k FROM R, S, T WHERE " + " AND ".join(CONJUNCTS))
    on, where = order[:cut] or ["TRUE"], order[cut:] or ["TRUE"]
    sql = f"SELECT R.k FROM R CROSS JOIN S JOIN T ON {' AND '.join(on)} WHERE "
    assert query(sql + " AND ".join(where)) == plain


def test_long_chains_of_conditions_stay_shallow() -> None:
    listed = " OR ".join(f"x = {i}" for i in range(400))
    ((condition,),) = [r.filter for r in query(f"SELECT k FROM R WHERE {listed}").relations]
    assert str(condition).count("=") == 400
    many = " AND ".join(f"x <> {i}" for i in range(400))
    assert len(filters(query(f"SELECT k FROM R WHERE {many}"))) == 400

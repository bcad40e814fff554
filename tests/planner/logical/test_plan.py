"""Compare logical plans of bound queries, before and after TSC, with DuckDB's results of the
statement.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch_contract.queries.joins import Stream, StreamKind, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.logical.nodes import Join, MultiJoin, Node, to_document, to_dot, to_text
from anabranch_planner.logical.tsc import Rule, multi_joins
from anabranch_planner.passes import Conversion, convert_query, parse_joins, parse_sql, read_sql
from benchmarks.papers.tsc.sql import to_sql
from tests.support.cases.syntaxes import respell
from tests.support.scenarios.queries import World
from tests.support.scenarios.rows import RECORDED, make_tables
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.in_memory import type_of

KINDS = {
    "a": {"k": "int", "x": "int", "s": "string", "ts": "timestamp"},
    "b": {"k": "int", "y": "int", "s": "string", "ts": "timestamp"},
    "c": {"k": "int", "y": "int", "z": "double", "ts": "timestamp"},
    "d": {"k": "bigint", "w": "decimal(9,2)", "ts": "timestamp"},
}
STREAMS = {
    name: Stream(
        StreamName(name), tuple((c, parse_type(t)) for c, t in kinds.items()), "ts", lateness=0
    )
    for name, kinds in KINDS.items()
}
CHAIN = "a.k = b.k AND b.y = c.y"
NEAR = "b.ts BETWEEN a.ts - INTERVAL '2' HOUR AND a.ts + INTERVAL '3' HOUR"


def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with floats rounded, since sums in another order differ."""
    return tuple(str(round(float(v), 4)) if isinstance(v, float | Decimal) else str(v) for v in row)


def results(db: duckdb.DuckDBPyConnection, sql: str) -> Counter[tuple[Any, ...]]:
    spoken = sqlglot.transpile(sql, read="spark", write="duckdb")[0]
    return Counter(map(comparable, db.execute(spoken).fetchall()))


def compared(
    db: duckdb.DuckDBPyConnection,
    sql: str,
    streams: Mapping[str, Stream],
    window: int | None = None,
    wanted: str | None = None,
) -> Conversion:
    """Execute both plans of ``sql`` and compare them with ``wanted`` (default: ``sql`` itself);
    return them.
    """
    found = convert_query(parse_sql("q", sql, streams, window), streams)
    rows = results(db, wanted or sql)
    for plan in found:
        assert results(db, to_sql(plan)) == rows, to_sql(plan)
        to_text(plan), to_dot(plan), json.dumps(to_document(plan))
    return found


@pytest.fixture(scope="module")
def small() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB database of small tables with many equal values and NULLs, and event times within
    ten hours.
    """
    rng = np.random.default_rng(4)
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for table, kinds in KINDS.items():
            declared = ", ".join(
                f"{c} {'VARCHAR' if t == 'string' else t}" for c, t in kinds.items()
            )
            db.execute(f"CREATE TABLE {table} ({declared})")
            for _ in range(25):
                values = [None if rng.random() < 0.15 else int(rng.integers(5)) for _ in kinds]
                values[-1] = f"2024-01-01 0{rng.integers(10)}:00:00"  # type: ignore[call-overload]
                db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
        yield db


STATEMENTS = f"""
SELECT a.x, b.y FROM a JOIN b ON a.k = b.k JOIN c ON b.y = c.y
SELECT a.x FROM a, b, c, d WHERE a.k = b.k AND c.k = d.k AND b.y = c.y AND a.x + d.w > 3
SELECT k, y, x, z FROM a JOIN b USING (k) JOIN c USING (k, y)
SELECT a.x, c.z FROM a, b, c WHERE a.k = c.k AND c.y = b.y
SELECT a.x FROM a JOIN b ON a.k = b.k WHERE a.x > 1 OR a.x IS NULL
SELECT a.x FROM a, b, c WHERE {CHAIN} AND (a.x = 1 OR b.k = 2 OR c.z < a.x)
SELECT a.x FROM a, b WHERE (a.k = b.k AND a.x = 1) OR (a.k = b.k AND b.y = 2)
SELECT p.x FROM a AS p JOIN a AS q ON p.k = q.k JOIN a AS r ON q.k = r.k WHERE p.x < q.x
SELECT q.x, c.z FROM (SELECT a.k, a.x + 1 AS x, b.y FROM a, b WHERE a.k = b.k) AS q, c \
WHERE q.y = c.y AND q.x * 2 > c.z
WITH q AS (SELECT k, x FROM a WHERE x > 0) SELECT p.x, r.x AS y FROM q AS p, q AS r WHERE p.k = r.k
SELECT a.x FROM a, d WHERE a.k = d.k AND a.x - (d.w - 1) < 2 AND NOT (a.x = 1 AND d.w > 2)
SELECT CASE WHEN a.x > 2 THEN 'big' ELSE a.s END AS kind, CAST(b.y AS STRING) AS t FROM a, b, c \
WHERE {CHAIN} AND a.s IN ('1', '2', '3')
SELECT a.x AS `two words` FROM a, b, c WHERE {CHAIN} AND a.s = concat(b.s, '')
SELECT a.x FROM a, c WHERE a.k = c.k AND a.k = c.y
SELECT a.x FROM a, b WHERE a.k + 1 = b.k AND {NEAR}
SELECT a.x FROM a, b, c WHERE {CHAIN} AND {NEAR} AND c.ts >= b.ts
SELECT a.x FROM a, b, c WHERE {CHAIN} AND {NEAR} AND c.ts < b.ts - INTERVAL '30' MINUTE
SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.y > 1 AND a.x > 1 AND {NEAR}
SELECT a.x, c.z, b.y FROM a JOIN c ON a.k = c.k LEFT JOIN b ON b.k = c.k AND b.s = a.s AND {NEAR}
SELECT a.x FROM a JOIN c ON a.k = c.k AND c.ts <= a.ts LEFT SEMI JOIN b ON b.k = a.k AND {NEAR}
SELECT a.x FROM a JOIN c ON a.k = c.k JOIN d ON d.k = a.k LEFT ANTI JOIN b \
ON b.k = a.k AND b.y = a.x AND {NEAR}
SELECT a.k, count(b.y) AS n FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} GROUP BY a.k
SELECT a.k, count(DISTINCT b.y) AS n, sum(c.z) + 1 AS t FROM a, b, c WHERE {CHAIN} \
GROUP BY a.k ORDER BY t DESC NULLS LAST, a.k LIMIT 3
SELECT DISTINCT a.k, b.s FROM a, b, c WHERE {CHAIN}
SELECT a.k % 2 AS parity, min(b.s) AS s, avg(c.z) AS z FROM a, b, c WHERE {CHAIN} \
GROUP BY a.k % 2 HAVING count(*) > 1 AND (min(b.y) < 3 OR max(b.y) > 3)
SELECT count(*) AS n, max(a.x + b.y) AS m FROM a JOIN b ON a.k = b.k
SELECT a.k, sum(a.x) AS t FROM a JOIN b ON a.k = b.k GROUP BY a.k \
HAVING sum(a.x) > (SELECT sum(a.x) * 0.2 FROM a JOIN b ON a.k = b.k)
SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k ORDER BY a.x, b.y DESC, a.k NULLS LAST LIMIT 4
SELECT a.k, b.s, sum(a.k) AS t, a.k + 1 AS n FROM a JOIN b ON a.k = b.k GROUP BY ROLLUP (a.k, b.s)
SELECT a.k, b.s, count(*) AS n, grouping(b.s) AS g FROM a JOIN b ON a.k = b.k \
GROUP BY b.s, CUBE (a.k, (a.x, b.y)) HAVING count(*) > 1
SELECT a.k, b.s, count(*) AS n, grouping_id(b.s, a.k) AS g FROM a JOIN b ON a.k = b.k \
GROUP BY GROUPING SETS ((a.k, b.s), ROLLUP (a.x))
SELECT DISTINCT a.k, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k
SELECT a.k, max_by(b.y, c.z) FILTER (WHERE b.y IS NOT NULL AND a.x > 1) IS NULL AS y, \
corr(b.y, c.z) AS r, covar_samp(a.x, b.y) FILTER (WHERE a.x > 1) AS c FROM a, b, c \
WHERE {CHAIN} GROUP BY a.k
SELECT a.k, sum(DISTINCT b.y) AS s, avg(DISTINCT a.x) AS v, median(b.y) AS m, \
count(DISTINCT b.s, b.y) FILTER (WHERE b.s IS NOT NULL AND b.y IS NOT NULL) AS d \
FROM a JOIN b ON a.k = b.k GROUP BY a.k
SELECT a.k, percentile_cont(0.3) WITHIN GROUP (ORDER BY c.z DESC) AS c, \
percentile_disc(0.6) WITHIN GROUP (ORDER BY c.z) FILTER (WHERE a.x > 1) AS d \
FROM a, b, c WHERE {CHAIN} GROUP BY a.k
SELECT a.k, listagg(b.s, '-') WITHIN GROUP (ORDER BY b.s DESC) AS l, \
listagg(DISTINCT b.s, '+') WITHIN GROUP (ORDER BY b.s) AS d FROM a JOIN b ON a.k = b.k GROUP BY a.k
SELECT a.k, a.x, b.y, row_number() OVER (PARTITION BY a.k ORDER BY b.y DESC, a.x, b.ts) AS n \
FROM a JOIN b ON a.k = b.k QUALIFY n <= 2
SELECT a.k, b.y FROM a JOIN b ON a.k = b.k \
QUALIFY dense_rank() OVER (PARTITION BY a.k ORDER BY b.y NULLS LAST) < 3
SELECT k, y, 2 * r AS r2 FROM (SELECT a.k, b.y, rank() OVER (ORDER BY b.y DESC) AS r \
FROM a JOIN b ON a.k = b.k) WHERE r <= 4
"""


@pytest.mark.parametrize("sql", STATEMENTS.strip().splitlines())
def test_results_are_those_of_the_statement(sql: str, small: duckdb.DuckDBPyConnection) -> None:
    assert results(small, sql)
    compared(small, sql, STREAMS)


CALLS = [
    "count(*)", "count(b.y)", "sum(a.x)", "sum(DISTINCT a.x + b.y)", "avg(DISTINCT b.y)",
    "min(b.s)", "max(a.x)", "count(DISTINCT b.y)", "median(c.z)", "corr(b.y, c.z) > 2",
    "covar_pop(a.x, c.z)", "listagg(b.s, '-') WITHIN GROUP (ORDER BY b.s)",
    "listagg(DISTINCT b.s, '') WITHIN GROUP (ORDER BY b.s DESC)",
    "percentile_cont(0.75) WITHIN GROUP (ORDER BY c.z DESC)",
    "percentile_disc(0.25) WITHIN GROUP (ORDER BY c.z)",
]  # fmt: skip
FILTERS = ["", " FILTER (WHERE a.x > 1)", " FILTER (WHERE b.y IS NULL OR c.z < 3)"]
KEYS = st.sampled_from(["a.k", "b.y", "a.x", "b.s", "a.x % 2"])
LISTS = st.lists(KEYS, min_size=1, max_size=3, unique=True).map(", ".join)
GROUPS = st.one_of(
    st.just(""),
    LISTS.map(" GROUP BY {}".format),
    LISTS.map(" GROUP BY ROLLUP ({})".format),
    LISTS.map(" GROUP BY CUBE ({})".format),
    st.lists(
        LISTS.map("({})".format), min_size=1, max_size=3, unique_by=lambda one: str(sorted(one))
    ).map(lambda sets: f" GROUP BY GROUPING SETS ({', '.join(sets)})"),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    calls=st.lists(
        st.tuples(st.sampled_from(CALLS), st.sampled_from(FILTERS)), min_size=1, max_size=4
    ),
    group=GROUPS,
    having=st.sampled_from(["", " HAVING count(*) > 1"]),
)
def test_random_aggregates(
    calls: list[tuple[str, str]], group: str, having: str, small: duckdb.DuckDBPyConnection
) -> None:
    items = []
    for number, (call, where) in enumerate(calls):
        function, _, compared_with = call.partition(" > ")
        tail = f" > {compared_with}" if compared_with else ""
        items.append(f"{function}{where}{tail} AS c{number}")
    sql = f"SELECT {', '.join(items)} FROM a, b, c WHERE {CHAIN}{group}{having}"
    compared(small, sql, STREAMS)


PARTS = st.lists(KEYS, max_size=2, unique=True).map(
    lambda keys: f"PARTITION BY {', '.join(keys)} " if keys else ""
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    function=st.sampled_from(["rank", "dense_rank", "row_number"]),
    partition=PARTS,
    order=st.lists(
        st.tuples(KEYS, st.sampled_from(["", " DESC", " NULLS LAST", " DESC NULLS FIRST"])),
        min_size=1,
        max_size=2,
    ),
    limit=st.sampled_from(["= 1", "< 3", "<= 4", "BETWEEN 1 AND 2"]),
    spelled=st.booleans(),
)
def test_random_rankings(
    function: str,
    partition: str,
    order: list[tuple[str, str]],
    limit: str,
    spelled: bool,
    small: duckdb.DuckDBPyConnection,
) -> None:
    keys = [f"{key}{direction}" for key, direction in order]
    # Ordered by all columns, rows at the same place are equal.
    keys += ["a.k", "a.x", "a.s", "a.ts", "b.k", "b.y", "b.s", "b.ts"]
    over = f"{function}() OVER ({partition}ORDER BY {', '.join(keys)})"
    if spelled:
        sql = f"SELECT a.x, b.y, {over} AS r FROM a JOIN b ON a.k = b.k QUALIFY r {limit}"
    else:
        inner = f"SELECT a.x, b.y, {over} AS r FROM a JOIN b ON a.k = b.k"
        sql = f"SELECT y, x, r * 2 AS r2 FROM ({inner}) AS q WHERE q.r {limit}"
    compared(small, sql, STREAMS)


LOOK_UPS = """
SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.y > 1 AND a.x > 1
SELECT a.x, b.y, d.w FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN d ON d.k = b.y
SELECT a.x, d.w, b.y FROM a LEFT JOIN d ON a.k = d.k LEFT JOIN b ON b.k = a.x WHERE d.w IS NULL
SELECT a.x FROM a LEFT ANTI JOIN b ON a.k = b.k AND b.y < a.x
SELECT a.x, c.z, b.s FROM a JOIN c ON a.k = c.k LEFT JOIN b ON b.k = c.k AND b.s = a.s
SELECT b.y, count(*) AS n FROM a LEFT JOIN b ON a.k = b.k GROUP BY b.y
"""


@pytest.mark.parametrize("sql", LOOK_UPS.strip().splitlines())
def test_look_ups_are_outer_joins(sql: str, small: duckdb.DuckDBPyConnection) -> None:
    tables = {
        name: replace(
            STREAMS[name], kind=StreamKind.TABLE, event_time=None, lateness=None, retain=None
        )
        for name in "bd"
    }
    compared(small, sql, {**STREAMS, **tables})


@pytest.mark.parametrize("seed", mostly_slow(range(60), 15))
def test_random_joins_in_random_words(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = make_tables(rng, 8, RECORDED)
    columns = {t.name: [str(c) for c in t.data.column_names] for t in tables}
    streams = {
        t.name: Stream(
            StreamName(t.name),
            tuple((f.name, type_of(f.type)) for f in t.data.schema),
            t.event_time,
        )
        for t in tables
    }
    world = World(tables, 1000, rng, brief=False)
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for table in tables:
            db.register(table.name, table.data.slice(0, 25))
        draft = world.draft(int(rng.integers(2, 5)))
        after = compared(db, respell(draft, columns, rng).sql, streams).after
        joins = multi_joins(after)
        wanted = [len(draft.members)] if len(draft.members) > 2 else []
        assert [len(join.inputs) for join in joins] == wanted


@pytest.mark.parametrize("hours", [0, 1, 4])
def test_a_window_is_a_condition_on_every_pair(
    hours: int, small: duckdb.DuckDBPyConnection
) -> None:
    sql = f"SELECT a.x FROM a, b, c WHERE {CHAIN}"
    near = "".join(
        f" AND {one}.ts <= {other}.ts + INTERVAL '{hours}' HOUR"
        for one in "abc"
        for other in "abc"
        if one != other
    )
    compared(small, sql, STREAMS, hours * 3_600_000_000, sql + near)


# --- the shape of plans --------------------------------------------------------------------------


def plans(sql: str) -> Conversion:
    return convert_query(parse_sql("q", sql, STREAMS), STREAMS)


def below(node: Node, kind: type[Node]) -> Node:
    """Return the first node of a kind below ``node``."""
    while not isinstance(node, kind):
        node = node.inputs[0]
    return node


def test_predicates_residuals_and_filters() -> None:
    sql = f"SELECT 1 AS o FROM a, b, c WHERE {CHAIN} AND a.x < c.z AND a.x > 2 AND b.s = 'u'"
    (join,) = multi_joins(plans(sql).after)
    assert [node.name for node in join.inputs] == ["a", "b", "c"]
    assert {c.text for c in join.predicates} == {"a.k = b.k", "b.y = c.y"}
    assert [c.text for c in join.residual] == ["c.z > CAST(a.x AS DOUBLE)"]
    assert "Filter a.x > 2" in to_text(join)


def test_the_rules_of_the_conversion_name_every_replaced_node() -> None:
    before, after = plans(f"SELECT 1 AS o FROM a, b, c WHERE {CHAIN}")
    (join,) = multi_joins(after)
    assert join.replaces == (
        f"Join inner b.y = c.y: {Rule.START}",
        f"Exchange hash(b.y): {Rule.EXCHANGE}",
        f"Join inner a.k = b.k: {Rule.JOIN}",
    )
    text = to_text(before)
    assert all(replaced.partition(":")[0] in text for replaced in join.replaces)


def test_two_inputs_stay_a_binary_join() -> None:
    before, after = plans("SELECT a.x FROM a, b WHERE a.k = b.k")
    assert after is before
    assert isinstance(below(after, Join), Join)


def test_an_outer_join_ends_a_group() -> None:
    sql = (
        f"SELECT a.x FROM a, c, d LEFT JOIN b ON b.k = a.k AND {NEAR} WHERE a.k = c.k AND c.k = d.k"
    )
    outer = below(plans(sql).after, Join)
    assert str(outer) == (
        "Join left a.k = b.k AND"
        " b.ts BETWEEN a.ts - INTERVAL '2 hours' AND a.ts + INTERVAL '3 hours'"
    )
    assert len(below(outer, MultiJoin).inputs) == 3


def test_cross_products_are_put_off() -> None:
    plan = to_text(plans("SELECT 1 AS o FROM a, b, c WHERE a.k = c.k AND c.y = b.y").before)
    assert "cross" not in plan
    assert "broadcast" not in plan


def test_names_are_short_where_they_are_unique() -> None:
    inner = "SELECT a.k, b.y FROM a, b WHERE a.k = b.k"
    (join,) = multi_joins(
        plans(f"SELECT q.y FROM ({inner}) AS q, a, c WHERE q.k = a.k AND c.y = q.y").after
    )
    assert [node.name for node in join.inputs] == ["a AS q.a", "b", "a", "c"]
    assert "`q.a`.k = b.k" in str(join)


def test_streams_whose_names_differ_in_case_only() -> None:
    kinds = KINDS["a"] | {"v": "int"}
    streams = {
        name: Stream(StreamName(name), tuple((c, parse_type(kinds[c])) for c in columns))
        for name, columns in {"a": "kx", "T": "kx", "t": "kv"}.items()
    }
    query = parse_sql(
        "q", "SELECT a.x FROM a JOIN T ON a.k = T.k JOIN t AS u ON T.x = u.v", streams
    )
    (join,) = multi_joins(convert_query(query, streams).after)
    assert [node.name for node in join.inputs] == ["a", "T", "t AS u"]
    assert {c.text for c in join.predicates} == {"T.k = a.k", "T.x = u.v"}


def test_the_joins_of_a_refused_statement() -> None:
    sql = f"SELECT try_avg(a.x) AS m FROM a, b, c WHERE {CHAIN} ORDER BY a.x"
    before, after = convert_query(parse_joins(read_sql(sql), STREAMS), STREAMS)
    assert isinstance(before, Join)
    assert isinstance(after, MultiJoin)


def test_windows_of_time_are_grouped_by() -> None:
    sql = (
        "SELECT window.start AS since, count(*) AS n FROM a JOIN b ON a.k = b.k"
        " GROUP BY window(a.ts, '1 hour', '30 minutes')"
    )
    text = to_text(plans(sql).before)
    assert "window(a.ts, '1 hour', '30 minutes').start AS since, count(*) AS n" in text
    sql = (
        "SELECT session_window.start AS since, count(*) AS n FROM a JOIN b ON a.k = b.k"
        " GROUP BY session_window(a.ts, '1 hour')"
    )
    assert "session_window(a.ts, '1 hour').start AS since" in to_text(plans(sql).before)

"""Tests of TSC (conversion of plans to multi-way joins): both plans have the results of the
statement in DuckDB.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import sqlglot

from anabranch_contract.errors import PlannerError, QueryError
from anabranch_planner.logical.nodes import (
    Join,
    MultiJoin,
    Node,
    ordered,
    to_document,
    to_dot,
    to_text,
)
from anabranch_planner.logical.tsc import convert, groups, multi_joins
from benchmarks.papers.__main__ import main
from benchmarks.papers.tsc.catalogs import KNOWN, parse_catalog, text_of
from benchmarks.papers.tsc.nodes import Named
from benchmarks.papers.tsc.sql import to_sql
from benchmarks.papers.tsc.statements import Catalog, read_statement
from benchmarks.papers.tsc.translate import translate
from tests.support.cases.syntaxes import respell
from tests.support.scenarios.queries import World
from tests.support.scenarios.rows import RECORDED, make_tables
from tests.support.surroundings.tpc import Workload, workload

CATALOG: Catalog = {
    "a": {"k": "int", "x": "int", "s": "string"},
    "b": {"k": "int", "y": "int", "s": "string"},
    "c": {"k": "int", "y": "int", "z": "double"},
    "d": {"k": "int", "w": "decimal(9,2)"},
}
#: Query -> number of inputs of each multi-way join, by the paper's Table 3.
PAPER = {
    2: [6, 4],
    3: [3],
    5: [6],
    7: [6],
    8: [8],
    9: [6],
    10: [4],
    11: [3, 3],
    15: [3],
    18: [3],
    21: [4],
}

# --- equal results -----------------------------------------------------------------------------


def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with floats rounded, since sums in another order differ."""
    return tuple(str(round(float(v), 4)) if isinstance(v, float | Decimal) else str(v) for v in row)


def results(db: duckdb.DuckDBPyConnection, sql: str) -> Counter[tuple[Any, ...]]:
    return Counter(map(comparable, db.execute(sql).fetchall()))


def tells(rows: Counter[tuple[Any, ...]]) -> bool:
    """Whether equal results are significant: there are rows with other values than NULL and 0."""
    return any(set(row) - {"None", "0", "0.0"} for row in rows)


def compared(
    db: duckdb.DuckDBPyConnection, sql: str, catalog: Catalog, dialect: str = "spark"
) -> tuple[Node, Counter[tuple[Any, ...]]]:
    """Return the converted plan of ``sql`` and its rows, after comparing the results of both plans
    and of ``sql``.
    """
    before = translate(sql, catalog, dialect)
    after = convert(before)
    wanted = results(db, sqlglot.transpile(sql, read=dialect, write="duckdb")[0])
    for plan in (before, after):
        said = sqlglot.transpile(to_sql(plan), read="spark", write="duckdb")[0]
        assert results(db, said) == wanted, said
        to_text(plan), to_dot(plan), json.dumps(to_document(plan))
    return after, wanted


def converted(
    db: duckdb.DuckDBPyConnection, sql: str, catalog: Catalog, dialect: str = "spark"
) -> Node:
    """The converted plan of ``sql``, after comparing both plans' results with the statement's."""
    return compared(db, sql, catalog, dialect)[0]


@pytest.fixture(scope="module")
def small() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB database of small tables with many equal values and NULLs."""
    rng = np.random.default_rng(4)
    with duckdb.connect() as db:
        for table, columns in CATALOG.items():
            kinds = {"string": "VARCHAR"}
            declared = ", ".join(f"{c} {kinds.get(t, t)}" for c, t in columns.items())
            db.execute(f"CREATE TABLE {table} ({declared})")
            for _ in range(25):
                values = [None if rng.random() < 0.15 else int(rng.integers(5)) for _ in columns]
                marks = ", ".join("?" * len(values))
                db.execute(f"INSERT INTO {table} VALUES ({marks})", values)
        yield db


STATEMENTS = """
SELECT a.x, b.y FROM a JOIN b ON a.k = b.k JOIN c ON b.y = c.y
SELECT a.x FROM a, b, c, d WHERE a.k = b.k AND c.k = d.k AND b.y = c.y AND a.x + d.w > 3
SELECT k, y, x, z FROM a JOIN b USING (k) JOIN c USING (k, y)
SELECT k, s, x, y, w FROM a NATURAL JOIN b NATURAL JOIN d
SELECT a.x FROM a CROSS JOIN b CROSS JOIN c WHERE a.k = c.k
SELECT a.x, q.n FROM a, (SELECT b.k, count(*) AS n FROM b, c WHERE b.k = c.k GROUP BY b.k) q, d\\
WHERE a.k = q.k AND d.k = a.k
WITH q AS (SELECT a.k, b.y FROM a, b, d WHERE a.k = b.k AND d.k = a.k) SELECT p.k, q.y FROM q,\\
q AS p WHERE p.k = q.k
WITH q AS (SELECT k, sum(x) AS x FROM a GROUP BY k) SELECT * FROM q, q AS p, b WHERE p.k = q.k\\
AND b.k = p.x
SELECT a.x FROM a LEFT JOIN b ON a.k = b.k AND b.y > 1 JOIN c ON c.k = a.k WHERE b.y IS NULL
SELECT a.x, c.z FROM a JOIN b ON a.k = b.k LEFT JOIN c ON c.k = a.k AND a.x > 2 WHERE a.x > 1\\
AND b.y < 4
SELECT a.x, c.z FROM a JOIN b ON a.k = b.k RIGHT JOIN c ON c.k = a.k WHERE a.x > 1 OR a.x IS NULL
SELECT a.x, c.z FROM a RIGHT JOIN c ON c.k = a.k JOIN b ON b.k = c.k WHERE c.z > 1
SELECT a.x, c.z FROM a FULL JOIN c ON c.k = a.k WHERE coalesce(a.x, 0) < 3
SELECT a.x FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON c.y = b.y LEFT JOIN d ON d.k = c.k
SELECT a.x FROM a LEFT SEMI JOIN b ON a.k = b.k JOIN c ON c.k = a.k
SELECT a.x FROM a LEFT ANTI JOIN b ON a.k = b.k AND a.x = b.y
SELECT a.x FROM a JOIN c ON a.k = c.k WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.y <>\\
c.y)
SELECT a.x FROM a WHERE NOT EXISTS (SELECT * FROM b, c, d WHERE b.k = c.k AND c.k = d.k AND b.y\\
= a.x)
SELECT a.x FROM a WHERE a.x IN (SELECT b.y FROM b WHERE b.k > a.k)
SELECT a.x FROM a WHERE a.x NOT IN (SELECT b.y FROM b WHERE b.y IS NOT NULL)
SELECT a.x FROM a WHERE a.x NOT IN (SELECT b.y FROM b)
SELECT a.x FROM a WHERE a.x NOT IN (SELECT b.y FROM b WHERE b.k = a.k)
SELECT a.x FROM a WHERE a.k IN (SELECT b.k FROM b WHERE b.y IN (SELECT c.y FROM c WHERE c.z > 2))
SELECT a.x FROM a WHERE a.k IN (SELECT b.k FROM b GROUP BY b.k HAVING count(*) > 3)
SELECT a.x FROM a, b, c WHERE a.k = b.k AND b.k = c.k AND c.z = (SELECT min(z) FROM c WHERE c.k\\
= a.k)
SELECT a.x FROM a WHERE a.x > 0.5 * (SELECT avg(y) FROM b WHERE b.k = a.k AND b.s = a.s) + 0.1
SELECT a.x FROM a WHERE a.x = (SELECT max(x) FROM a)
SELECT a.x FROM a WHERE a.x < (SELECT count(*) FROM b)
SELECT k, (SELECT max(y) FROM b) AS m FROM a WHERE x > 1 OR k IN (SELECT k FROM c)
SELECT k, sum(x) AS t FROM a GROUP BY k HAVING sum(x) > (SELECT avg(y) FROM b)
SELECT a.k, count(DISTINCT b.y) AS n, sum(c.z) + 1 AS t FROM a, b, c WHERE a.k = b.k AND b.k =\\
c.k GROUP BY a.k ORDER BY t DESC, n, a.k LIMIT 3
SELECT DISTINCT a.k FROM a, b, c WHERE a.k = b.k AND b.k = c.k ORDER BY a.k LIMIT 2 OFFSET 1
SELECT a.k FROM a JOIN b ON a.k = b.k UNION SELECT c.k FROM c
SELECT k FROM a UNION ALL SELECT k FROM b INTERSECT SELECT k FROM c
(SELECT k FROM a) EXCEPT (SELECT k FROM b)
SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x, s) AS n FROM a WHERE x IS NOT NULL\\
AND s IS NOT NULL
SELECT k, sum(sum(x)) OVER (ORDER BY k NULLS LAST) AS run FROM a GROUP BY k
SELECT a.k, b.s, grouping(a.k) AS g, sum(a.x) AS t FROM a JOIN b ON a.k = b.k GROUP BY ROLLUP\\
(a.k, b.s)
SELECT a.x FROM a, b WHERE (a.k = b.k AND a.x = 1) OR (a.k = b.k AND b.y = 2)
SELECT a.x AS `two words` FROM a, b, c WHERE a.k = b.k AND a.k = c.k ORDER BY `two words` LIMIT\\
100
SELECT 1 AS one
SELECT p.x FROM a AS p JOIN a AS q ON p.k = q.k JOIN a AS r ON q.k = r.k WHERE p.x < q.x
SELECT a.x FROM a JOIN b ON a.k = b.k AND a.x < b.y JOIN c ON c.k = b.k AND c.z > a.x
SELECT CASE WHEN a.x > 2 THEN 'big' ELSE a.s END AS kind, CAST(b.y AS STRING) AS t FROM a, b, c\\
WHERE a.k = b.k AND b.k = c.k
"""


@pytest.mark.parametrize("sql", STATEMENTS.replace("\\\n", " ").strip().splitlines())
def test_results_are_those_of_the_statement(sql: str, small: duckdb.DuckDBPyConnection) -> None:
    converted(small, sql, CATALOG)


@pytest.mark.parametrize("seed", range(60))
def test_random_joins_in_random_words(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = make_tables(rng, 8, RECORDED)
    columns = {t.name: [str(c) for c in t.data.column_names] for t in tables}
    catalog = {name: dict.fromkeys(names, "string") for name, names in columns.items()}
    world = World(tables, 1000, rng, brief=False)
    with duckdb.connect() as db:
        for table in tables:
            db.register(table.name, table.data.slice(0, 25))
        draft = world.draft(int(rng.integers(2, 5)))
        sql = respell(draft, columns, rng).sql
        after = converted(db, sql, catalog)
        if len(draft.members) > 2 and all(c.is_join for c in draft.conditions):
            assert [len(m.inputs) for m in multi_joins(after)] == [len(draft.members)]


# --- TPC ---------------------------------------------------------------------------------------


def tpc(name: str, factory: pytest.TempPathFactory, scale: float = 0.01) -> Workload:
    try:
        return workload(name, factory.getbasetemp() / "tpc", scale)
    except subprocess.CalledProcessError as cause:
        pytest.skip(f"DuckDB's {name} extension can't be installed: {cause.stderr[-200:]!r}")


def opened(found: Workload) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    for path in found.folder.glob("*.parquet"):
        db.execute(f"CREATE VIEW {path.stem} AS SELECT * FROM '{path}'")
    return db


def test_all_of_tpch_is_exact_and_the_paper_s_queries_convert(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    found = tpc("tpch", tmp_path_factory)
    catalog = parse_catalog(text_of("tpch"))
    sizes, silent = {}, set()
    with opened(found) as db:
        for number, sql in found.queries.items():
            after, rows = compared(db, sql, catalog, "duckdb")
            sizes[number] = [len(m.inputs) for m in multi_joins(after)]
            silent |= set() if tells(rows) else {number}
    assert silent == {17}
    larger = tpc("tpch", tmp_path_factory, 0.1)
    with opened(larger) as db:
        assert tells(compared(db, larger.queries[17], catalog, "duckdb")[1])
    assert {number: sizes[number] for number in PAPER} == PAPER
    # Q17 has three inputs as well when its subquery is a join; nine queries have no three inputs.
    assert {n for n, found in sizes.items() if found} == {*PAPER, 17}
    assert len(sizes) == 22


@pytest.mark.slow
def test_tpcds_is_exact_or_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compare queries without rows, or with only NULL and 0, at scale 0.01 also at scale 1."""
    found = tpc("tpcds", tmp_path_factory)
    catalog = parse_catalog(text_of("tpcds"))
    refused, equal, with_joins = {}, {}, 0
    with opened(found) as db:
        for number, sql in found.queries.items():
            try:
                after, equal[number] = compared(db, sql, catalog, "duckdb")
            except QueryError as error:
                refused[number] = error
            else:
                with_joins += bool(multi_joins(after))
    assert set(refused) == {10, 35, 41}
    assert all("correlated" in e.message and e.position for e in refused.values())
    assert with_joins == 90
    silent = {number for number, rows in equal.items() if not tells(rows)}
    empty = {number for number in silent if not equal[number]}
    assert (len(equal), len(silent), len(empty)) == (96, 35, 25)
    larger = tpc("tpcds", tmp_path_factory, 1)
    with opened(larger) as db:
        db.execute("SET memory_limit = '6GB'")
        for number in sorted(silent):
            assert tells(compared(db, larger.queries[number], catalog, "duckdb")[1]), number


# --- converted joins, and the ends of groups ----------------------------------------------------


def sizes(sql: str) -> list[int]:
    return [len(m.inputs) for m in multi_joins(convert(translate(sql, CATALOG)))]


@pytest.mark.parametrize(
    ("sql", "inputs"),
    [
        ("SELECT 1 AS o FROM a, b WHERE a.k = b.k", []),
        ("SELECT 1 AS o FROM a, b, c WHERE a.k = b.k AND b.k = c.k", [3]),
        ("SELECT 1 AS o FROM a, b, c, d WHERE a.k = b.k AND b.k = c.k AND c.k = d.k", [4]),
        ("SELECT 1 AS o FROM a, b, c LEFT JOIN d ON c.k = d.k WHERE a.k = b.k AND b.k = c.k", [3]),
        (
            "SELECT 1 AS o FROM a LEFT JOIN d ON a.k = d.k, b, c WHERE a.k = b.k AND b.k = c.k",
            [3],
        ),
        (
            "SELECT 1 AS o FROM a, b, (SELECT c.k FROM c, d WHERE c.k = d.k) q"
            " WHERE a.k = b.k AND b.k = q.k",
            [4],
        ),
        (
            "SELECT 1 AS o FROM a, b, (SELECT DISTINCT c.k FROM c, d WHERE c.k = d.k) q"
            " WHERE a.k = b.k AND b.k = q.k",
            [3],
        ),
        (
            "WITH q AS (SELECT a.k FROM a, b, d WHERE a.k = b.k AND d.k = a.k)"
            " SELECT 1 AS o FROM q, q AS p, c WHERE p.k = q.k AND c.k = q.k",
            [3, 3],
        ),
    ],
)
def test_groups_end_where_they_must(sql: str, inputs: list[int]) -> None:
    assert sizes(sql) == inputs


def test_what_is_read_twice_stays_one_node() -> None:
    plan = convert(
        translate(
            "WITH q AS (SELECT a.k, sum(a.x) AS x FROM a, b, d WHERE a.k = b.k AND d.k = a.k"
            " GROUP BY a.k) SELECT 1 AS o FROM q, q AS p, c WHERE p.k = q.x AND c.k = q.k",
            CATALOG,
        )
    )
    named = [node for node in ordered(plan) if isinstance(node, Named)]
    assert len(named) == 2
    assert named[0].inputs[0] is named[1].inputs[0]


def test_predicates_and_residuals_of_a_multi_way_join() -> None:
    sql = (
        "SELECT 1 AS o FROM a, b, c WHERE a.k = b.k AND b.y = c.y AND a.x < c.z"
        " AND a.x > 2 AND b.s = 'u'"
    )
    before = translate(sql, CATALOG)
    (group,) = groups(before)
    assert sum(isinstance(node, Join) for node in group.members) == 2
    (join,) = multi_joins(convert(before))
    assert [node.name for node in join.inputs] == ["a", "b", "c"]
    assert {c.text for c in join.predicates} == {"a.k = b.k", "b.y = c.y"}
    assert [c.text for c in join.residual] == ["a.x < c.z"]
    assert "Filter a.x > 2" in to_text(join)
    assert isinstance(join, MultiJoin)


def test_cross_products_are_put_off() -> None:
    plan = to_text(translate("SELECT 1 AS o FROM a, b, c WHERE a.k = c.k AND c.y = b.y", CATALOG))
    assert "cross" not in plan
    assert "broadcast" not in plan


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "code", "part", "position"),
    [
        ("SELECT x FROM nope", "unknown-table", "'nope'", (1, 15)),
        ("SELECT x\nFROM a WHERE q = 1", "unknown-name", "q", (2, 14)),
        ("SELECT x FROM a WHERE", "malformed-sql", "", None),
        ("SELECT x FROM a WHERE k = 'u", "malformed-sql", "unclosed", None),
        ("DROP TABLE a", "unsupported-sql", "not a single query", None),
        ("SELECT x FROM a; SELECT x FROM a", "unsupported-sql", "not a single query", (1, 8)),
        (
            "WITH RECURSIVE q(k) AS (SELECT k FROM a UNION ALL SELECT k + 1 AS k FROM q"
            " WHERE k < 9) SELECT k FROM q",
            "unsupported-sql",
            "RECURSIVE",
            None,
        ),
        (
            "SELECT x FROM a WHERE x > 1 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
            "unsupported-sql",
            "correlated",
            (1, 47),
        ),
        (
            "SELECT x FROM a WHERE x < (SELECT count(*) FROM b WHERE b.k = a.k)",
            "unsupported-sql",
            "correlated",
            (1, 35),
        ),
        (
            "SELECT x, (SELECT max(y) FROM b WHERE b.k = a.k) AS m FROM a",
            "unsupported-sql",
            "correlated",
            None,
        ),
        ("SELECT k FROM a LATERAL VIEW explode(s) t AS e", "unsupported-sql", "LATERALS", None),
        ("SELECT k FROM a TABLESAMPLE (10 PERCENT)", "unsupported-sql", "SAMPLE", (1, 30)),
    ],
)
def test_refusals_name_the_construct(
    sql: str, code: str, part: str, position: tuple[int, int] | None
) -> None:
    with pytest.raises(QueryError) as caught:
        translate(sql, CATALOG)
    assert caught.value.code == code
    assert part in caught.value.message
    assert caught.value.remedy
    if position is not None:
        assert caught.value.position == position


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(QueryError, match="did you mean 'spark'"):
        translate("SELECT x FROM a", CATALOG, "sparc")


@pytest.mark.parametrize(
    ("sql", "dialect", "named"),
    [
        (
            "SELECT R.k FROM R ORDER BY R.k LIMIT 50 PERCENT",
            "spark",
            "LIMIT ... PERCENT",
        ),
        (
            "SELECT R.k FROM R ORDER BY R.k LIMIT 1 BY R.k",
            "clickhouse",
            "LIMIT ... BY",
        ),
        ("SELECT R.k FROM R, S WHERE R.k = S.k (+)", "oracle", "(+)"),
        ("SELECT R.k FROM R TABLESAMPLE (5 PERCENT) JOIN S ON R.k = S.k", "spark", "TABLESAMPLE"),
    ],
)
def test_no_argument_of_a_statement_is_passed_over(sql: str, dialect: str, named: str) -> None:
    catalog = {name: dict.fromkeys(("k", "x"), "int") for name in "RS"}
    with pytest.raises(QueryError) as refused:
        read_statement(sql, catalog, dialect)
    assert named in refused.value.message


# --- catalogs and the command line -------------------------------------------------------------


@pytest.mark.parametrize("name", KNOWN)
def test_catalogs_that_come_along(name: str) -> None:
    assert len(parse_catalog(text_of(name))) == {"tpch": 8, "tpcds": 24}[name]


@pytest.mark.parametrize(
    ("text", "field"),
    [("[]", "catalog"), ("a: 3", "a"), ("a: {k: nonsense}", "a.k"), ("a: {}", "a")],
)
def test_a_catalog_that_is_none(text: str, field: str) -> None:
    with pytest.raises(PlannerError) as caught:
        parse_catalog(text)
    assert caught.value.field == field
    assert caught.value.remedy


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statement, catalog = tmp_path / "q.sql", tmp_path / "catalog.yaml"
    statement.write_text("SELECT a.x FROM a, b, c WHERE a.k = b.k AND b.k = c.k AND a.x < c.z;")
    catalog.write_text("".join(f"{t}: {json.dumps(c)}\n" for t, c in CATALOG.items()))
    call = ["tsc", "convert", "--sql", str(statement), "--catalog", str(catalog)]
    assert main([*call, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (join,) = said["multijoins"]
    assert join["inputs"] == ["a", "b", "c"]
    assert sorted(join["predicates"]) == ["a.k = b.k", "b.k = c.k"]
    assert join["residual"] == ["a.x < c.z"]
    assert said["before"]["inputs"][0]["node"] == "Join"
    assert said["after"]["inputs"][0]["node"] == "MultiJoin"
    assert main(call) == 0
    assert "1 multi-way join" in capsys.readouterr().out
    assert main([*call, "--dot"]) == 0
    assert "digraph" in capsys.readouterr().out
    statement.write_text("SELECT a.nope FROM a")
    assert main(call) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {statement}: line 1, column 8: ")
    assert error.count("\n") == 1
    assert main(["tsc", "convert", "--sql", str(tmp_path / "none"), "--catalog", "tpch"]) == 2

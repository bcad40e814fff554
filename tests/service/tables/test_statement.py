"""Tests of SQL statements over tables: the names that they read, and refused statements."""

from __future__ import annotations

import pytest

from anabranch_service.tables.child import tree_of
from anabranch_service.tables.files import TableError
from anabranch_service.tables.statement import tables_of


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT 1", []),
        ("FROM a", ["a"]),
        ('SELECT * FROM "late-orders" JOIN b USING (k) WHERE x > (SELECT max(y) FROM "c~2")', 3),
        ("WITH a AS (FROM b) SELECT * FROM a, range(3), (VALUES (1)) v", ["b"]),
        ("SELECT * FROM '/etc/passwd'", ["/etc/passwd"]),
        ("FROM a UNION ALL (FROM b EXCEPT FROM c)", 3),
        ("SELECT unnest(l), x.* FROM a, unnest(a.l) x, json_each('{}')", ["a"]),
        ("WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 3) FROM t", []),
        ("SELECT 'FROM read_csv(x)' AS \"read_csv\"", []),
        ("DESCRIBE pair", ["pair"]),
        ("SUMMARIZE anabranch.queries.pair", ["pair"]),
        ("WITH x AS (FROM a) SELECT * FROM (DESCRIBE SELECT * FROM x JOIN b USING (k))", 2),
    ],
)
def test_names_of_tables(sql: str, names: list[str] | int) -> None:
    found = tables_of(tree_of(sql))
    assert len(found) == names if isinstance(names, int) else found == names


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '/tmp/x'",
        "COPY pair TO '/tmp/x'",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE pair",
        "DELETE FROM pair",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA database_list",
        "SET memory_limit = '64GB'",
        "EXPORT DATABASE '/tmp/x'",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SHOW TABLES",
        "SHOW pair",
        "DESCRIBE",
        "SELECT * FROM (SHOW DATABASES)",
        "DESCRIBE information_schema.tables",
        "DESCRIBE (SELECT * FROM read_csv('/etc/passwd'))",
        "SELECT * FROM (SUMMARIZE SELECT * FROM duckdb_settings())",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM READ_TEXT('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd'), pair",
        "SELECT * FROM parquet_metadata('/tmp/pair/0000000000-00000.parquet')",
        "SELECT (SELECT count(*) FROM glob('/*'))",
        "SELECT * FROM pair WHERE 1 IN (SELECT 1 FROM sniff_csv('/etc/passwd'))",
        "WITH x AS (SELECT * FROM read_json('/etc/passwd')) SELECT * FROM x",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM query_table('pair')",
        "SELECT * FROM json_execute_serialized_sql('x')",
        "SELECT * FROM arrow_scan(1, 2, 3)",
        "SELECT * FROM pandas_scan(1)",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM main.pair",
        "SELECT * FROM information_schema.tables",
    ],
)
def test_statements_that_are_refused(sql: str) -> None:
    with pytest.raises(TableError) as refused:
        tables_of(tree_of(sql))
    assert refused.value.code == "sql-refused"
    assert refused.value.field == "sql"


def test_two_names_that_duckdb_takes_for_one() -> None:
    with pytest.raises(TableError, match="only in case"):
        tables_of(tree_of('FROM a, "A"'))


@pytest.mark.parametrize("sql", ["SELEC", "SELECT FROM", f"SELECT {'(' * 9000}1{')' * 9000}", ""])
def test_malformed_statements(sql: str) -> None:
    with pytest.raises(TableError) as refused:
        tables_of(tree_of(sql))
    assert refused.value.code in ("bad-sql", "sql-refused")

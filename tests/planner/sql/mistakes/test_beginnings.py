"""Tests of statements that are no queries (INSERT, CREATE, …): what they are called, and what to do
instead.
"""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.dialects import to_spark
from tests.support.cases.refusals import refusal

ONLY_SELECT = "register only its SELECT; the query's sink says where the results go"
APPEND_ONLY = (
    "streams only gain rows: leave rows out with WHERE, or limit how long a stream keeps them"
)


@pytest.mark.parametrize(
    ("sql", "what", "remedy"),
    [
        ("INSERT INTO out SELECT k FROM R", "an INSERT", ONLY_SELECT),
        (
            "INSERT INTO R VALUES (1)",
            "an INSERT",
            "send the rows to the stream's source; a query only reads streams",
        ),
        ("CREATE TABLE t AS SELECT k FROM R", "a CREATE", ONLY_SELECT),
        ("CREATE OR REPLACE VIEW v AS SELECT k FROM R", "a CREATE", ONLY_SELECT),
        (
            "CREATE TABLE t LIKE R",
            "a CREATE",
            "register a stream for a table: anabranch stream add; for a view register its SELECT",
        ),
        ("update R set k = 1", "an UPDATE", APPEND_ONLY),
        ("DELETE FROM R WHERE k = 1", "a DELETE", APPEND_ONLY),
        ("MERGE INTO R USING S ON R.k = S.k WHEN MATCHED THEN DELETE", "a MERGE", APPEND_ONLY),
        (
            "DROP TABLE IF EXISTS shop.R",
            "a DROP",
            "delete the query or the stream R: anabranch query rm R, anabranch stream rm R",
        ),
        (
            "EXPLAIN SELECT k FROM R",
            "an EXPLAIN",
            "explain the SELECT after it: anabranch query explain 'SELECT ...'",
        ),
        (
            "SHOW TABLES",
            "a SHOW",
            "list streams and queries: anabranch stream list, anabranch query list",
        ),
        (
            "DESCRIBE shop.R",
            "a DESCRIBE",
            "show the stream and its columns: anabranch stream show R",
        ),
        ("USE shop", "a USE", "name registered streams; they belong to no database"),
    ],
)
def test_what_is_no_query_says_what_to_do(sql: str, what: str, remedy: str) -> None:
    error = refusal(sql)
    assert (error.code, error.position) == ("unsupported-sql", (1, 1))
    assert error.message == f"{what} statement is not supported"
    assert error.remedy == remedy


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        ("CREATE TABLE t (a INT)", "--column a:int --path FOLDER, or --format for another source"),
        (
            "CREATE TABLE t (id BIGINT, price DECIMAL(10, 2) NOT NULL, at TIMESTAMP(3), "
            "WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH ('connector' = 'kafka', "
            "'topic' = 'orders', 'properties.bootstrap.servers' = 'broker:9092')",
            "--column id:bigint --column 'price:decimal(10,2)' --column at:timestamp "
            "--event-time at --lateness '5 seconds' --format kafka --option brokers=broker:9092 "
            "--option topics=orders",
        ),
        (
            "create table if not exists shop.t (id bigint primary key, name text, x jsonb)",
            "--column id:bigint --column name:string --column x:string --kind upsert --key id "
            "--path FOLDER, or --format for another source",
        ),
        (
            "CREATE TABLE t (a INT, b ARRAY<STRING>, c ROW<x INT, y BYTES>, PRIMARY KEY (a, b) NOT "
            "ENFORCED) WITH ('connector' = 'filesystem', 'path' = '/data/my t')",
            "--column a:int --column 'b:array<string>' --column 'c:struct<x:int,y:binary>' "
            "--kind upsert --key a --key b --path '/data/my t'",
        ),
        (
            "CREATE EXTERNAL TABLE t (a INT COMMENT 'no, (really)') USING parquet LOCATION '/d'",
            "--column a:int --path /d",
        ),
        (
            "CREATE TABLE t (a INT) WITH ('connector' = 'postgres-cdc', 'table-name' = 'o')",
            "--column a:int --format postgres --option table=o --option url=URL",
        ),
        ("CREATE TABLE t", "--path FOLDER, or --format for another source"),
        ("CREATE TABLE t (", "--path FOLDER, or --format for another source"),
        ("CREATE TABLE t (a", "--path FOLDER, or --format for another source"),
    ],
)
def test_tables_are_streams(sql: str, options: str) -> None:
    error = refusal(sql)
    assert (error.code, error.position) == ("unsupported-sql", (1, 1))
    assert error.message == (
        "CREATE TABLE t, as streams are registered by commands, is not supported"
    )
    assert error.remedy == f"write anabranch stream add t {options}"


@pytest.mark.parametrize(
    ("sql", "what", "remedy"),
    [
        (
            "CREATE TEMPORARY VIEW v AS SELECT k FROM R",
            "CREATE TEMPORARY VIEW",
            "write CREATE VIEW v AS SELECT ..., which registers query v, or WITH v AS (SELECT ...) "
            "for one statement",
        ),
        (
            "CREATE FUNCTION f AS 'x.Y'",
            "CREATE FUNCTION",
            "allow its Python module, and register it: anabranch function add "
            "'f(x DOUBLE) RETURNS DOUBLE' --from MODULE",
        ),
        (
            "CREATE UNIQUE INDEX i ON R (k)",
            "CREATE INDEX",
            "leave it out: the planner chooses what is indexed",
        ),
    ],
)
def test_what_else_is_created(sql: str, what: str, remedy: str) -> None:
    error = refusal(sql)
    assert (error.code, error.message) == ("unsupported-sql", f"{what} is not supported")
    assert error.remedy == remedy


@pytest.mark.parametrize("sql", ["", "  ", ";", "-- hello", "/* x */ ;;"])
def test_an_empty_statement_is_named_so(sql: str) -> None:
    error = refusal(sql)
    more = ": there are only comments and semicolons" if sql.strip() else ""
    assert (error.code, error.message) == ("malformed-sql", f"the statement is empty{more}")
    assert error.remedy == "write SELECT ... FROM a [JOIN b ON ...] [WHERE ...]"


def test_an_insert_after_with_is_one_too() -> None:
    error = refusal("WITH c AS (SELECT k FROM R)\nINSERT INTO out SELECT k FROM c")
    assert error.code == "unsupported-sql"
    assert error.message == "an INSERT statement is not supported"
    assert error.remedy == ONLY_SELECT


@pytest.mark.parametrize(
    ("sql", "word", "remedy", "position"),
    [
        ("SELCT k FROM R", "SELCT", "did you mean 'SELECT'?", (1, 1)),
        ("-- a\n  slect k FROM R", "slect", "did you mean 'SELECT'?", (2, 3)),
        ("WIHT c AS (SELECT k FROM R) SELECT k FROM c", "WIHT", "did you mean 'WITH'?", (1, 1)),
        ("hello", "hello", "a query begins with SELECT or WITH", (1, 1)),
    ],
)
def test_another_first_word(sql: str, word: str, remedy: str, position: tuple[int, int]) -> None:
    error = refusal(sql)
    assert (error.code, error.position) == ("malformed-sql", position)
    assert error.message == f"the statement begins with {word!r}"
    assert error.remedy == remedy


@pytest.mark.parametrize(
    ("sql", "message", "remedy"),
    [
        ('INSERT INTO "o" SELECT 1', "an INSERT statement is not supported", ONLY_SELECT),
        ('SELCT "k" FROM "R"', "the statement begins with 'SELCT'", "did you mean 'SELECT'?"),
    ],
)
def test_other_dialects_say_the_same(sql: str, message: str, remedy: str) -> None:
    with pytest.raises(QueryError) as caught:
        to_spark(sql, "postgres")
    error = caught.value
    assert (error.message, error.remedy) == (message, remedy)
    assert (error.field, error.position) == ("sql", (1, 1))

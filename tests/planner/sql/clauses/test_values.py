"""Tests of joins with VALUES, which become CASE and IN, and of refused ones."""

from __future__ import annotations

import pytest

from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams

NAMED = "(VALUES (1, 'one'), (2, 'two')) AS v(id, label)"
CASE = "CASE WHEN 1 = R.k THEN 'one' WHEN 2 = R.k THEN 'two' END"


@pytest.mark.parametrize(
    ("sql", "plain"),
    [
        (
            f"SELECT R.x, v.label FROM R JOIN {NAMED} ON v.id = R.k",
            f"SELECT R.x, {CASE} AS label FROM R WHERE R.k IN (1, 2)",
        ),
        (
            f"SELECT R.x, label FROM R, {NAMED} WHERE id = k AND label <> 'one'",
            f"SELECT R.x, {CASE} AS label FROM R WHERE R.k IN (1, 2) AND {CASE} <> 'one'",
        ),
        (
            f"SELECT R.x, upper(v.label) FROM R LEFT JOIN {NAMED} ON v.id = R.k",
            f"SELECT R.x, upper({CASE}) AS `upper(label)` FROM R",
        ),
        (
            f"SELECT v.label, R.x FROM {NAMED} JOIN R ON v.id = R.k",
            f"SELECT {CASE} AS label, R.x FROM R WHERE R.k IN (1, 2)",
        ),
        (
            f"SELECT v.label, max(R.x) AS top FROM R JOIN {NAMED} ON v.id = R.k GROUP BY v.label",
            f"SELECT {CASE} AS label, max(R.x) AS top FROM R WHERE R.k IN (1, 2) GROUP BY {CASE}",
        ),
        # GROUP BY prefers a column to an alias, ORDER BY the alias.
        (
            f"SELECT upper(v.label) AS label, count(*) AS n FROM R JOIN {NAMED} ON v.id = R.k "
            "GROUP BY label ORDER BY label LIMIT 2",
            f"SELECT upper({CASE}) AS label, count(*) AS n FROM R WHERE R.k IN (1, 2) "
            f"GROUP BY {CASE} ORDER BY label LIMIT 2",
        ),
        # USING: the bare name is the stream's column.
        (
            "SELECT k, v.label FROM R LEFT JOIN (VALUES (1, 'one'), (2, 'two')) AS v(k, label) "
            "USING (k)",
            f"SELECT k, {CASE} AS label FROM R",
        ),
        # NULL equals no key.
        (
            "SELECT R.x, v.b FROM R JOIN (VALUES (1, 2), (NULL, 3), (NULL, 4)) AS v(a, b) "
            "ON v.a = R.k",
            "SELECT R.x, CASE WHEN 1 = R.k THEN 2 END AS b FROM R WHERE R.k IN (1)",
        ),
        # The columns of VALUES join another stream.
        (
            f"SELECT R.x FROM R JOIN {NAMED} ON v.id = R.k JOIN S ON S.k = v.id",
            "SELECT R.x FROM R JOIN S ON S.k = CASE WHEN 1 = R.k THEN 1 WHEN 2 = R.k THEN 2 END "
            "WHERE R.k IN (1, 2)",
        ),
    ],
)
def test_a_join_with_values_is_a_look_up(sql: str, plain: str) -> None:
    streams = sample_streams()
    assert parse_sql("q", sql, streams) == parse_sql("q", plain, streams)


def test_stars_have_the_columns_in_the_order_of_from() -> None:
    streams = sample_streams()
    found = parse_sql("q", f"SELECT * FROM R JOIN {NAMED} ON v.id = R.k", streams)
    own = [name for name, _ in streams["R"].columns]
    assert [output.name for output in found.projection] == [*own, "id", "label"]
    found = parse_sql("q", f"SELECT v.*, R.k FROM R JOIN {NAMED} ON v.id = R.k", streams)
    assert [output.name for output in found.projection] == ["id", "label", "k"]


@pytest.mark.parametrize("keys", ["(1), (1.0)", "('1'), ('01')", "(1), (1)",
                                  "('2024-01-01'), ('2024-1-1')", "('t'), ('true')",
                                  "(9007199254740992), (9007199254740993)"])  # fmt: skip
def test_keys_that_may_be_equal_in_some_type_are_refused(keys: str) -> None:
    error = refusal(f"SELECT R.x FROM R JOIN (VALUES {keys}) AS v(a) ON v.a = R.k")
    assert error.code == "unsupported-sql"
    assert "several rows of equal v.a" in error.message


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        (f"SELECT id FROM {NAMED}", "as the first table"),
        (f"SELECT R.k FROM R FULL JOIN {NAMED} ON v.id = R.k", "FULL JOIN with VALUES v"),
        (f"SELECT R.k FROM R LEFT SEMI JOIN {NAMED} ON v.id = R.k", "SEMI JOIN with VALUES v"),
        (
            f"SELECT S.k FROM R JOIN {NAMED} ON v.id = R.k RIGHT JOIN S ON S.k = R.k",
            "before a RIGHT or FULL JOIN",
        ),
        (
            f"SELECT R.k FROM R JOIN {NAMED} ON v.id = R.k "
            "WHERE EXISTS (SELECT 1 FROM S WHERE S.k = v.id)",
            "in a subquery",
        ),
        (f"SELECT * EXCEPT (k) FROM R JOIN {NAMED} ON v.id = R.k", "* beside VALUES"),
        (f"SELECT * FROM {NAMED} JOIN R ON v.id = R.k", "* with VALUES"),
        (
            f"SELECT max(R.x) AS label FROM R JOIN {NAMED} ON v.id = R.k GROUP BY v.label "
            "HAVING label > 1",
            "label, an alias and a column of VALUES",
        ),
    ],
)
def test_other_uses_are_refused(sql: str, part: str) -> None:
    error = refusal(sql)
    assert error.code == "unsupported-sql"
    assert part in error.message

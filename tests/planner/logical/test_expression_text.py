"""The text of an expression is read back as the same expression, with no needless parentheses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Column, Expr, substitute
from anabranch_planner.logical.expression_text import text_of
from anabranch_planner.normal.conditions import canonical
from anabranch_planner.passes import parse_sql
from tests.support.cases.sample_streams import sample_streams

STREAMS = sample_streams()


def read(text: str) -> Expr:
    """The expression over ``R``."""
    (output,) = parse_sql("q", f"SELECT {text} AS o FROM R", STREAMS).projection
    return substitute(output.expr, lambda c: Column("R", c.name, c.type))


NUMBERS: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["R.k", "R.l", "R.x", "2", "7"]),
        st.tuples(NUMBERS, st.sampled_from("+-*%"), NUMBERS).map(lambda t: f"({' '.join(t)})"),
        NUMBERS.map(lambda t: f"(- {t})"),
        st.tuples(TRUTHS, NUMBERS).map(lambda t: f"CASE WHEN {t[0]} THEN {t[1]} ELSE R.k END"),
        st.tuples(NUMBERS, NUMBERS).map(lambda t: f"coalesce({t[0]}, {t[1]})"),
    )
)
TRUTHS: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.tuples(NUMBERS, st.sampled_from(["=", "<>", "<", ">=", "<=>"]), NUMBERS).map(
            lambda t: f"({' '.join(t)})"
        ),
        st.tuples(TRUTHS, st.sampled_from(["AND", "OR", "="]), TRUTHS).map(
            lambda t: f"({' '.join(t)})"
        ),
        TRUTHS.map(lambda t: f"(NOT {t})"),
        TRUTHS.map(lambda t: f"({t} IS NULL)"),
        NUMBERS.map(lambda t: f"({t} IS NOT NULL)"),
        NUMBERS.map(lambda t: f"({t} IN (1, 2, R.x))"),
        st.sampled_from(["R.s LIKE 'a%'", "R.day < DATE '2024-02-29'"]),
    )
)


@given(st.one_of(NUMBERS, TRUTHS))
def test_text_is_read_back_as_the_expression(text: str) -> None:
    try:
        expr = read(text)
    except QueryError:
        return
    assert canonical(read(text_of(expr))) == canonical(expr), text_of(expr)


@pytest.mark.parametrize(
    "text",
    [
        "R.k + R.x * 2",
        "(R.k + R.x) * 2",
        "R.k - (R.x - 2)",
        "R.k - R.x - 2",
        "R.k > 1 AND (R.x = 2 OR R.x IS NULL)",
        "NOT (R.k = 1 AND R.x = 2)",
        "R.day = DATE '2024-02-29'",
        "R.ts > TIMESTAMP '2024-02-29 12:30:00'",
        "R.ts - INTERVAL '1 day 2 hours' < R.ts",
        "R.s LIKE '%it''s%'",
        "CAST(R.p AS DECIMAL(20,2)) > 3.50",
        "R.k IN (1, 2)",
        "X'00ff' = X'00ff'",
        "coalesce(R.s, 'none')",
        "CASE WHEN R.k > 1 THEN 'a' ELSE R.s END",
    ],
)
def test_text_is_written_as_people_write_it(text: str) -> None:
    assert text_of(read(text)) == text

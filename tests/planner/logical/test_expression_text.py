"""Tests that an expression's text is parsed to the same expression, and has no needless
parentheses.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Call, Column, Expr, Literal, substitute
from anabranch_contract.queries.types import parse_type
from anabranch_planner.logical.expression_text import text_of
from anabranch_planner.passes import parse_sql
from tests.support.cases.sample_streams import sample_streams

STREAMS = sample_streams()
TIMESTAMP = parse_type("timestamp")


def read(text: str) -> Expr:
    """Parse an expression over ``R``."""
    (output,) = parse_sql("q", f"SELECT {text} AS o FROM R", STREAMS).projection
    return substitute(output.expr, lambda c: Column("R", c.name, c.type))


def flat(expr: Expr) -> object:
    """Return ``expr`` with chains of AND and OR, which are associative, as one operation each."""
    if not isinstance(expr, Call):
        return expr
    args = list(expr.args)
    if expr.op in ("and", "or"):
        while any(isinstance(a, Call) and a.op == expr.op for a in args):
            args = [
                part
                for a in args
                for part in (a.args if isinstance(a, Call) and a.op == expr.op else (a,))
            ]
    return expr.op, expr.type, tuple(map(flat, args))


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
    assert flat(read(text_of(expr))) == flat(expr), text_of(expr)


LITERALS = st.one_of(
    st.text(max_size=8).map(lambda v: Literal(v, parse_type("string"))),
    st.dates().map(lambda d: Literal((d - date(1970, 1, 1)).days, parse_type("date"))),
    st.datetimes().map(
        lambda t: Literal((t - datetime(1970, 1, 1)) // timedelta(microseconds=1), TIMESTAMP)  # noqa: DTZ001
    ),
    st.integers(-(2**31), 2**31 - 1).map(lambda n: Literal(n, parse_type("int"))),
    st.binary(max_size=4).map(lambda b: Literal(b.hex(), parse_type("binary"))),
)


@given(LITERALS)
def test_literals_are_read_back(literal: Literal) -> None:
    assert read(text_of(literal)) == literal, text_of(literal)


def test_times_beyond_the_calendar_have_a_text() -> None:
    assert text_of(Literal(2**62, TIMESTAMP)) == f"timestamp'{2**62}'"


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
        r"R.s = 'it\'s \\ so'",
        "CAST(R.p AS DECIMAL(20,2)) > 3.50",
        "R.k IN (1, 2)",
        "X'00ff' = X'00ff'",
        "coalesce(R.s, 'none')",
        "CASE WHEN R.k > 1 THEN 'a' ELSE R.s END",
    ],
)
def test_text_is_written_as_people_write_it(text: str) -> None:
    assert text_of(read(text)) == text

"""Tests of filters that imply others, and of the parts of filters that are checked after
the join.
"""

from __future__ import annotations

import operator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.normal.implication import implies
from anabranch_planner.passes import parse_sql

INT = parse_type("int")
OPERATORS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
STREAMS = {
    name: Stream(StreamName(name), (("k", INT), ("v", INT), ("s", parse_type("string"))))
    for name in ("a", "b")
}


def condition(op: str, *values: int) -> Expr:
    column = Column("", "v", INT)
    return Call(op, (column, *(Literal(v, INT) for v in values)), BOOLEAN)


def true_of(expr: Expr, value: int | None) -> bool:
    assert isinstance(expr, Call)
    if expr.op == "or":
        return any(true_of(part, value) for part in expr.args)
    if expr.op == "is_not_null":
        return value is not None
    wanted: list[Any] = [a.value for a in expr.args[1:] if isinstance(a, Literal)]
    if value is None:
        return False
    return value in wanted if expr.op == "in" else bool(OPERATORS[expr.op](value, wanted[0]))


small = st.integers(0, 4)
simple = st.one_of(
    st.builds(condition, st.sampled_from(sorted(OPERATORS)), small),
    st.builds(lambda vs: condition("in", *vs), st.lists(small, min_size=2, max_size=3)),
    st.just(Call("is_not_null", (Column("", "v", INT),), BOOLEAN)),
)
conditions = st.one_of(simple, st.builds(lambda a, b: Call("or", (a, b), BOOLEAN), simple, simple))


@given(st.lists(conditions, max_size=3), st.lists(conditions, max_size=2))
def test_what_is_said_to_be_implied_is(strong: list[Expr], weak: list[Expr]) -> None:
    if implies(strong, weak):
        for value in (None, *range(-1, 7)):
            if all(true_of(c, value) for c in strong):
                assert all(true_of(c, value) for c in weak), value


@given(simple, simple)
def test_between_single_comparisons_nothing_is_missed(strong: Expr, weak: Expr) -> None:
    # Also values between integers, since an implication may hold for integers only.
    values: list[Any] = [None, *(x / 2 for x in range(-2, 14))]
    holds = all(true_of(weak, v) for v in values if true_of(strong, v))
    satisfiable = any(true_of(strong, v) for v in values)
    assert isinstance(strong, Call)
    if holds and satisfiable and strong.op != "is_not_null":
        assert implies([strong], [weak])


def test_what_a_relation_lacks_is_a_residual() -> None:
    sql = "SELECT a.k FROM a JOIN b ON a.k = b.k WHERE a.v > 5 AND a.s = 'x' AND b.v = 1"
    (kept,) = (
        parse_sql("w", "SELECT a.k FROM a JOIN b USING (k) WHERE a.v > 3", STREAMS)
        .relations[0]
        .filter
    )
    query = parse_sql("q", sql, STREAMS, None, {"a": (kept,)})
    filters = {r.stream: [str(f) for f in r.filter] for r in query.relations}
    assert filters == {"a": ["(v > 3)"], "b": ["(v = 1)"]}
    label = next(m.label for m in query.members if m.alias == "a")
    assert [str(r) for r in query.residuals] == [f"({label}.s = 'x')", f"({label}.v > 5)"]

"""Tests of query families: SQL templates, and constants in place of parameters."""

from __future__ import annotations

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as some
from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.families import Constant, parameters, substituted, template

CONSTANTS: some.SearchStrategy[Constant] = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(some.characters(exclude_categories=("Cs", "Cc")))
)


@given(CONSTANTS, CONSTANTS)
def test_a_constant_is_read_as_it_was_given(one: Constant, other: Constant) -> None:
    statement = "SELECT f(:one, -:one), ':one', `:one`, x::int FROM t -- :no\n WHERE a = :other"
    assert parameters(statement) == ("one", "other")
    read = sqlglot.parse_one(substituted(statement, {"one": one, "other": other}), "spark")
    first, second = read.expressions[0].expressions
    assert _value(first) == one
    assert _value(second.this) == one
    compared = read.find(exp.EQ)
    assert compared is not None
    assert _value(compared.expression) == other
    assert read.expressions[1].this == ":one"
    assert read.expressions[2].name == ":one"
    assert isinstance(read.expressions[3], exp.Cast)


def _value(node: exp.Expression) -> Constant:
    """Return the constant that a syntax tree stands for."""
    if isinstance(node, exp.Paren):
        return _value(node.this)
    if isinstance(node, exp.Neg):
        return -_value(node.this)  # type: ignore[operator]
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    assert isinstance(node, exp.Literal)
    return str(node.this) if node.is_string else float(node.this)


@given(some.lists(some.integers() | some.text("ab '\\?:0-"), min_size=2, max_size=2))
def test_statements_that_differ_in_constants_have_one_template(values: list[Constant]) -> None:
    statement = "SELECT a0.v FROM t a0\n  WHERE a0.v >:x -- an 'odd' note: 1\n AND b IN (:x, 'y')"
    texts = [substituted(statement, {"x": value}) for value in values]
    one, other = map(template, texts)
    assert one.text == other.text == "SELECT a0.v FROM t a0 WHERE a0.v > ? AND b IN (?)"
    assert len(one.constants) == len(other.constants) == 2


@pytest.mark.parametrize(
    ("sql", "text", "constants"),
    [
        ("SELECT a - 1, -2, 3.5e-2 FROM t1", "SELECT a - ?, ?, ? FROM t1", ("1", "-2", "3.5e-2")),
        ("x IN (1) OR x in ( 1,2, 3 )", "x IN (?) OR x in (?)", ("1", "1, 2, 3")),
        ("`a?1` = 1 AND y IN ('?', \"b\")", '`a?1` = ? AND y IN (?, "b")', ("1", "'?'")),
        ("d > DATE '2020-01-01' AND v < 1L", "d > DATE ? AND v < ?", ("'2020-01-01'", "1L")),
        ("a /* 7 */ BETWEEN - 1 AND  2", "a BETWEEN ? AND ?", ("-1", "2")),
        (r"a = 'it\'s' AND b = r'\'", "a = ? AND b = ?", (r"'it\'s'", r"r'\'")),
    ],
)
def test_templates(sql: str, text: str, constants: tuple[str, ...]) -> None:
    found = template(sql)
    assert (found.text, found.constants) == (text, constants)


def test_parameters_and_values_are_the_same() -> None:
    for values, code, field in (
        ({}, "missing-parameter", "a"),
        ({"a": 1, "b": 2}, "unknown-parameter", "b"),
    ):
        with pytest.raises(QueryError) as caught:
            substituted("SELECT v FROM s WHERE v = :a", values)
        assert (caught.value.code, caught.value.field) == (code, field)
        assert caught.value.remedy
    # Other dialects escape quotes differently.
    with pytest.raises(QueryError) as caught:
        substituted("SELECT :a", {"a": "it's"}, "postgres")
    assert caught.value.code == "bad-parameter"
    assert substituted("SELECT :a", {"a": "its"}, "postgres") == "SELECT 'its'"

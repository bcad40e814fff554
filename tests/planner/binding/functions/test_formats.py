"""Tests of format strings of ``format_string``: pieces and refusals."""

from __future__ import annotations

import pytest

from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams


def test_a_format_is_a_concatenation_of_its_pieces() -> None:
    sql = "SELECT format_string('%s: %05d%%', name, b) AS a FROM t"
    (output,) = parse_sql("q", sql, sample_streams()).projection
    text = str(output.expr)
    assert text.startswith("concat(coalesce(")
    assert "format_string('%05d', " in text
    assert "' null'" in text


@pytest.mark.parametrize(
    ("call", "code", "part"),
    [
        ("format_string(name, b)", "unsupported-sql", "which is not a literal text"),
        ("format_string('%s')", "bad-literal", "there is no value for %s"),
        ("format_string('%3$s', name)", "bad-literal", "there is no value for %s"),
        ("format_string('%c', name)", "bad-literal", "%c is not supported"),
        ("format_string('%-d', b)", "bad-literal", "%-d is not supported"),
        ("format_string('%.2d', b)", "bad-literal", "%.2d is not supported"),
        ("format_string('%+s', name)", "bad-literal", "%+s is not supported"),
        ("format_string('%9999s', name)", "bad-literal", "%9999s is not supported"),
        ("format_string('50%', name)", "bad-literal", "a % stands before no conversion"),
        ("format_string('%d', d)", "type-mismatch", "%d does not take"),
        ("format_string('%.2f', p)", "type-mismatch", "%.2f does not take"),
        ("format_string('%s', ts)", "unsupported-sql", "%s of t"),
        ("format_string('%s', w)", "unsupported-sql", "%s of t"),
    ],
)
def test_refusals(call: str, code: str, part: str) -> None:
    error = refusal(f"SELECT {call} AS a FROM t")
    assert error.code == code
    assert part in error.message

"""Tests that words between the arguments of substring and overlay are read as commas."""

from __future__ import annotations

import pytest

from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams


@pytest.mark.parametrize(
    ("spoken", "plain"),
    [
        ("substring(s FROM 2 FOR 3)", "substring(s, 2, 3)"),
        ("substr(s FROM 2)", "substring(s, 2)"),
        ("substring(trim('x' FROM s) FROM length(s))", "substring(trim('x' FROM s), length(s))"),
        ("overlay(s PLACING 'x' FROM 2 FOR 1)", "overlay(s, 'x', 2, 1)"),
        ("overlay(s PLACING substr(s FROM 1 FOR 2) FROM 2)", "overlay(s, substring(s, 1, 2), 2)"),
    ],
)
def test_words_are_commas(spoken: str, plain: str) -> None:
    streams = sample_streams()
    name = "AS `a name`" if plain.startswith("overlay") else ""
    found = parse_sql("q", f"SELECT {spoken} {name} FROM R", streams)
    assert found == parse_sql("q", f"SELECT {plain} {name} FROM R", streams)


@pytest.mark.parametrize("call", ["substring(s FROM)", "substring(FROM 2)", "left(s FROM 2)"])
def test_elsewhere_the_words_stay(call: str) -> None:
    assert refusal(f"SELECT {call} AS a FROM R").code == "malformed-sql"

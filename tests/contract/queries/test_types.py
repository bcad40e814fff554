"""Tests of column types: accepted and refused texts."""

from __future__ import annotations

import pickle

import pytest

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.types import MOST_DEEP, DataType, parse_type


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("INT", "int"),
        (" decimal ", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"),
        ("varchar(20)", "string"),
        ("timestamp(3)", "timestamp"),
        ("Array<Long>", "array<bigint>"),
        ("map<string, array<decimal(3, 1)>>", "map<string,array<decimal(3,1)>>"),
        ("STRUCT<Aa INT, b: string>", "struct<Aa:int,b:string>"),
        ("struct<`>`:int,`,`:int>", "struct<`>`:int,`,`:int>"),
        ("struct<`a b`: struct<`x,y>`:int>>", "struct<`a b`:struct<`x,y>`:int>>"),
    ],
)
def test_types_are_read_and_shown(text: str, shown: str) -> None:
    found = parse_type(text)
    assert str(found) == shown
    again = pickle.loads(pickle.dumps(parse_type(shown)))
    assert again == found
    assert (again.kind, again.fields) == (found.kind, found.fields)


@pytest.mark.parametrize(
    "text",
    [
        "", "list", "array", "array<", "array<>", "array<int", "array<int>>", "array<int,int>",
        "map<int>", "map<int,int,int>", "struct<>", "struct<a>", "struct<a:int,A:int>",
        "struct<a:int,>", "struct<a:int b:int>", "decimal(40)", "decimal(2,3)", "decimal(1,2,3)",
        "decimal(a)", "decimal(٣)", "interval", "array<interval>", "void", "int; drop",
        "struct<`${x}`:int>", "struct<`a\n`:int>", "struct<``:int>",
    ],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(PlannerError) as error:
        parse_type(text)
    assert error.value.code == "unknown-type"
    assert error.value.remedy


def test_deep_and_wide_types_are_refused() -> None:
    deep = "array<" * MOST_DEEP + "int" + ">" * MOST_DEEP
    assert str(parse_type(deep)) == deep
    wide = ",".join(f"c{n}:int" for n in range(1000))
    for text in (f"array<{deep}>", f"struct<{wide}>", "array<" * 100_000):
        with pytest.raises(PlannerError, match=r"nested deeper|more than"):
            parse_type(text)


def test_expressions_have_more_types() -> None:
    assert [str(DataType.from_text(t)) for t in ("array<interval day>", "array<void>")] == [
        "array<interval day>", "array<void>",
    ]  # fmt: skip


def test_fields_are_found_in_any_case() -> None:
    kind = parse_type("struct<Name:string,n:int>")
    assert kind.field("nAME") == ("Name", "string")
    assert kind.field("m") is None
    assert parse_type("map<string,int>").element == "int"

"""Tests of expressions as JSON documents."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal

import pytest

from anabranch_contract import codec
from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.expressions import (
    BOOLEAN,
    NULL,
    Call,
    Column,
    Expr,
    Literal,
    Output,
)
from anabranch_contract.queries.types import parse_type
from anabranch_planner.binding.literals import cast_literal

DOUBLE, STRING = parse_type("double"), parse_type("string")
AMOUNT = parse_type("decimal(20,2)")
MEANT: list[Expr] = [
    Column("R#1", "a", parse_type("bigint")),
    Literal(Decimal("1.50"), AMOUNT),
    Literal(0.1, DOUBLE),
    Literal(None, NULL),
    Literal("inf", STRING),
    Call("cast", (Literal("-inf", STRING),), DOUBLE),
    Column("", "nan", DOUBLE),
    Call("not", (Literal(True, BOOLEAN),), BOOLEAN),
]


@pytest.mark.parametrize("meant", MEANT)
def test_documents_come_back_as_they_were(meant: Expr) -> None:
    output = Output("o", meant)
    text = codec.dumps(output)
    assert codec.loads(text, Output) == output == pickle.loads(pickle.dumps(output))
    document = codec.to_json(output)
    assert document == json.loads(text)
    assert codec.from_json(document, Output) == output


def test_a_float_is_finite() -> None:
    for value in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ValueError, match="not a value of a literal"):
            Literal(value, DOUBLE)
    assert cast_literal(Literal("1e400", STRING), DOUBLE) is None


@pytest.mark.parametrize(
    "document",
    [
        {"term": "literal", "literal": 1},
        {"term": "literal", "literal": 1, "type": "no such type"},
        {"term": "call", "op": "no such operation", "args": [], "type": "int"},
        {"term": "other", "type": "int"},
        {"column": "a", "alias": "R#1", "type": "bigint"},
        {"term": "literal", "literal": "0.1", "type": "double"},
        [],
    ],
)
def test_what_is_no_expression_is_refused(document: object) -> None:
    with pytest.raises((codec.Malformed, PlannerError), match=r"type|operation|term|array"):
        codec.from_json({"e": document}, dict[str, Expr])

"""Documents of expressions, in this release and in earlier ones."""

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
    marked,
)
from anabranch_contract.queries.types import parse_type
from anabranch_planner.binding.literals import cast_literal

DOUBLE, STRING = parse_type("double"), parse_type("string")
AMOUNT = parse_type("decimal(20,2)")
#: As releases up to version 5 of rulesets wrote them, and what they mean.
EARLIER: list[tuple[object, Expr]] = [
    ({"column": "a", "alias": "R#1", "type": "bigint"}, Column("R#1", "a", parse_type("bigint"))),
    ({"literal": "1.50", "type": "decimal(20,2)"}, Literal(Decimal("1.50"), AMOUNT)),
    ({"literal": "0.1", "type": "double"}, Literal(0.1, DOUBLE)),
    ({"literal": None, "type": "void"}, Literal(None, NULL)),
    ({"literal": "inf", "type": "string"}, Literal("inf", STRING)),
    ({"literal": "-inf", "type": "double"}, Call("cast", (Literal("-inf", STRING),), DOUBLE)),
    ({"column": "nan", "alias": "", "type": "double"}, Column("", "nan", DOUBLE)),
    (
        {"op": "not", "args": [{"literal": True, "type": "boolean"}], "type": "boolean"},
        Call("not", (Literal(True, BOOLEAN),), BOOLEAN),
    ),
]


@pytest.mark.parametrize(("document", "meant"), EARLIER)
def test_documents_of_earlier_releases_are_read(document: object, meant: Expr) -> None:
    assert codec.from_json(marked({"e": document}), dict[str, Expr]) == {"e": meant}


@pytest.mark.parametrize("meant", [meant for _, meant in EARLIER])
def test_documents_come_back_as_they_were(meant: Expr) -> None:
    output = Output("o", meant)
    text = codec.dumps(output)
    assert codec.loads(text, Output) == output == pickle.loads(pickle.dumps(output))
    document = codec.to_json(output)
    assert document == json.loads(text) == marked(document)
    assert codec.from_json(document, Output) == output


def test_a_float_is_finite() -> None:
    for value in (float("nan"), float("inf"), "-inf"):
        with pytest.raises(ValueError, match="no value of a literal"):
            Literal(value, DOUBLE)
    assert cast_literal(Literal("1e400", STRING), DOUBLE) is None


@pytest.mark.parametrize(
    "document",
    [
        {"term": "literal", "literal": 1},
        {"term": "literal", "literal": 1, "type": "no such type"},
        {"term": "call", "op": "no such operation", "args": [], "type": "int"},
        {"term": "other", "type": "int"},
        [],
    ],
)
def test_what_is_no_expression_is_refused(document: object) -> None:
    with pytest.raises((codec.Malformed, PlannerError), match=r"type|operation|term|array"):
        codec.from_json({"e": document}, dict[str, Expr])

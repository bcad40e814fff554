"""Comparisons of SQL rows, ``(a, b) = (c, d)`` and ``(a, b) IN ((1, 2), (3, 4))``, by column.

As in Spark, a row value is never NULL, and NULLs inside rows equal each other. So ``(a, b) = (c,
d)`` means ``a <=> c AND b <=> d``, which is true or false.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Call, Expr, Literal
from anabranch_contract.queries.types import TypeKind
from anabranch_planner.sql.unresolved import Node, conjunction, unsupported

_EQUAL = (exp.EQ, exp.NullSafeEQ)
_OF_ROWS = "of rows"
_VALUES: dict[TypeKind, object] = {
    TypeKind.STRING: "",
    TypeKind.BOOLEAN: False,
    TypeKind.DOUBLE: 0.0,
    TypeKind.FLOAT: 0.0,
    TypeKind.DECIMAL: Decimal(0),
    TypeKind.BINARY: "",
}


def expanded(node: Node) -> Node:
    """``node`` with its comparison of rows written column by column; other nodes are unchanged.

    Raises:
        QueryError: rows are compared by order, or have different numbers of columns.
    """
    if isinstance(node, exp.In):
        if _row(node.this) is None or not node.expressions:
            return node
        alternatives = [_equal_rows(node.this, item) for item in node.expressions]
        return reduce(lambda a, b: exp.Or(this=a, expression=b), alternatives)
    if not isinstance(node, exp.Binary) or not (_row(node.this) or _row(node.expression)):
        return node
    if isinstance(node, exp.NEQ):
        return exp.Not(this=exp.Paren(this=_equal_rows(node.this, node.expression)))
    if isinstance(node, _EQUAL):
        return _equal_rows(node.this, node.expression)
    raise unsupported(
        "a comparison of rows by order", "compare their columns one by one, with OR and AND"
    )


def is_of_rows(node: Node) -> bool:
    """Whether ``node``, a comparison of two columns, comes from rows (:func:`expanded`)."""
    return _OF_ROWS in node.meta


def without_nulls(side: Expr) -> Expr:
    """One side of a comparison of SQL rows, with a constant for NULL, so that NULLs are equal."""
    value = _VALUES.get(side.type.kind, 0)
    return Call("coalesce", (side, Literal(value, side.type)), side.type)  # type: ignore[arg-type]


def _row(node: Node) -> Sequence[Node] | None:
    while isinstance(node, exp.Paren):
        node = node.this
    return list(node.expressions) if isinstance(node, exp.Tuple) else None


def _equal_rows(left: Node, right: Node) -> Node:
    one, other = _row(left), _row(right)
    if one is None or other is None or len(one) != len(other):
        counts = [1 if row is None else len(row) for row in (one, other)]
        raise QueryError(
            "type-mismatch",
            f"a row of {counts[0]} is compared with one of {counts[1]}",
            remedy="compare rows of as many columns",
        )
    pairs = []
    for a, b in zip(one, other, strict=True):
        pair = expanded(exp.NullSafeEQ(this=a, expression=b))
        pair.meta[_OF_ROWS] = True
        pairs.append(pair)
    return conjunction(pairs)

"""Texts of expressions over columns whose type was widened after rows were stored.

The text of an expression identifies filters of stores, and keys of indexes and partitions. So one
text must denote one function of the stored rows, whatever type a column had when they were written.
A function of a column may depend on its type (``hash(n)``, ``n + 1``). If it does, the column is
written with a cast to its present type; a statement that cast the narrower column has the same
text.

>>> from anabranch_contract.queries.expressions import BOOLEAN
>>> from anabranch_contract.queries.types import parse_type
>>> n, five = Column("", "n", parse_type("bigint")), Literal(5, parse_type("bigint"))
>>> both = Call("and", (Call("gt", (n, five), BOOLEAN), Call("lt", (n, n), BOOLEAN)), BOOLEAN)
>>> str(typed(both, lambda column: True))
'((n > 5) AND (cast(n as bigint) < cast(n as bigint)))'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch_contract.queries.expressions import Call, Column, Expr, Literal
from anabranch_contract.queries.types import EXACT, DataType

#: Operations whose value does not depend on the type of an integer or decimal beside literals.
_OF_VALUES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "in"})
#: Operations whose value does not depend on the type of a column.
_OF_ANY = frozenset({"is_null", "is_not_null", "constant"})


def typed(expr: Expr, is_widened: Callable[[Column], bool]) -> Expr:
    """Return ``expr`` with casts around the widened columns on whose types its value may depend."""
    if isinstance(expr, Column):
        return Call("cast", (expr,), expr.type) if is_widened(expr) else expr
    if not isinstance(expr, Call) or _is_plain(expr):
        return expr
    if expr.op == "cast" and isinstance(expr.args[0], Column) and expr.type == expr.args[0].type:
        return expr
    return Call(expr.op, tuple(typed(arg, is_widened) for arg in expr.args), expr.type)


def retyped(expr: Expr, types: Mapping[str, DataType]) -> Expr:
    """Return a store's condition rewritten for columns of its relation that now have ``types``."""
    if isinstance(expr, Column):
        return Column(expr.alias, expr.name, types.get(expr.name, expr.type))
    if not isinstance(expr, Call):
        return expr
    args = [retyped(arg, types) for arg in expr.args]
    if _is_plain(expr):
        old, new = expr.args[0].type, args[0].type
        args = [
            Literal(arg.value, new) if isinstance(arg, Literal) and arg.type == old else arg
            for arg in args
        ]
    return Call(expr.op, tuple(args), expr.type)


def _is_plain(call: Call) -> bool:
    """Whether the result of ``call`` does not depend on the types of the columns that it reads."""
    first, *others = call.args or (None,)
    if not isinstance(first, Column):
        return False
    literals = all(isinstance(other, Literal) for other in others)
    return call.op in _OF_ANY or (call.op in _OF_VALUES and first.type.kind in EXACT and literals)

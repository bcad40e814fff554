"""Typed expressions as SQL text of Spark's dialect, with the fewest parentheses.

>>> from anabranch_contract.queries.types import parse_type
>>> k = Column("o", "k", parse_type("bigint"))
>>> text_of(Call("mul", (Call("add", (k, k), k.type), k), k.type))
'(o.k + o.k) * o.k'
"""

from __future__ import annotations

import re

from anabranch_contract.durations import format_duration
from anabranch_contract.queries.expressions import (
    OPERATIONS,
    OWN_FORMS,
    Call,
    Column,
    Expr,
    Literal,
    own_form,
)
from anabranch_contract.queries.text_values import interval_text, moment_text
from anabranch_contract.queries.types import TIMESTAMPS, TypeKind

_SIMPLE = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
#: Infix operators, the loosest first; the operators in one element have equal precedence.
_LOOSEST_FIRST = (
    {"or"}, {"and"}, {"not"}, {"eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "like", "in",
    "is_null", "is_not_null"}, {"add", "sub"}, {"mul", "div", "mod"}, {"neg"},
)  # fmt: skip
_BINDING = {op: level for level, ops in enumerate(_LOOSEST_FIRST) for op in ops}
_COMPARISON = _BINDING["eq"]


def text_of(expr: Expr) -> str:
    """``expr`` as SQL text; a column without an alias is printed as its name, unquoted."""
    if isinstance(expr, Column):
        return f"{quoted(expr.alias)}.{quoted(expr.name)}" if expr.alias else expr.name
    if isinstance(expr, Literal):
        return _literal(expr)
    symbol, level = OPERATIONS[expr.op], _BINDING.get(expr.op)
    args = [text_of(arg) for arg in expr.args]
    if level is None:
        return _function_text(expr, symbol, args)
    # AND and OR are associative; comparisons can't be chained; other chains are left-associative.
    chained = expr.op in ("and", "or")
    bound = [
        f"({text})"
        if _level(arg) < level + (not chained and (place > 0 or level == _COMPARISON))
        else text
        for place, (arg, text) in enumerate(zip(expr.args, args, strict=True))
    ]
    if expr.op in ("is_null", "is_not_null"):
        return f"{bound[0]} {symbol}"
    if expr.op == "in":
        return f"{bound[0]} IN ({', '.join(args[1:])})"
    if len(bound) == 1:
        return f"{symbol} {bound[0]}"
    return f" {symbol} ".join(bound)


def conjuncts(expr: Expr) -> list[Expr]:
    """The operands of AND in a bound expression, at any depth of ANDs."""
    if isinstance(expr, Call) and expr.op == "and":
        return [c for arg in expr.args for c in conjuncts(arg)]
    return [expr]


def quoted(name: str) -> str:
    """A name as SQL, in backticks unless it has letters, digits and underscores only."""
    return name if _SIMPLE.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _level(expr: Expr) -> int:
    return _BINDING.get(expr.op, len(_BINDING)) if isinstance(expr, Call) else len(_BINDING)


def _function_text(expr: Call, symbol: str, args: list[str]) -> str:
    if expr.op == "cast":
        return f"CAST({args[0]} AS {expr.type.upper()})"
    if expr.op == "case":
        pairs = zip(args[::2], args[1::2], strict=False)
        branches = " ".join(f"WHEN {when} THEN {then}" for when, then in pairs)
        otherwise = f" ELSE {args[-1]}" if len(args) % 2 else ""
        return f"CASE {branches}{otherwise} END"
    if expr.op in OWN_FORMS:
        return own_form(expr, args)
    return f"{symbol}({', '.join(args)})"


def _literal(literal: Literal) -> str:
    value, kind = literal.value, literal.type.kind
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"{'X' * (kind is TypeKind.BINARY)}'{escaped}'"
    if not isinstance(value, int):
        return str(literal)
    if kind is TypeKind.INTERVAL:
        return f"INTERVAL '{format_duration(value)}'"
    if kind is TypeKind.MONTHS:
        return interval_text(value, literal.type)
    is_moment = kind in TIMESTAMPS or kind is TypeKind.DATE
    return (moment_text(value, kind) if is_moment else None) or str(literal)

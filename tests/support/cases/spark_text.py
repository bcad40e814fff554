"""Typed expressions as Spark SQL, to compare the kernels' values with Spark's."""

from __future__ import annotations

from anabranch_contract.connectors.spark_text import quoted, string
from anabranch_contract.queries.expressions import OPERATIONS, Call, Column, Expr, Literal
from anabranch_contract.queries.types import TypeKind

_INFIX = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "and", "or", "like",
    "add", "sub", "mul", "div", "mod", "div_int", "bit_and", "bit_or",
    "bit_xor",
})  # fmt: skip
_MICROS_PER_DAY = 86_400_000_000


def to_spark_text(expr: Expr) -> str:
    """Return ``expr`` in Spark's SQL; a column's alias becomes the table or struct before its name.

    Raises:
        QueryError: a column has a name that can't be quoted safely.
    """
    if isinstance(expr, Column):
        name = quoted(expr.name)
        return f"{quoted(expr.alias)}.{name}" if expr.alias else name
    if isinstance(expr, Literal):
        return _literal(expr)
    args = [to_spark_text(a) for a in expr.args]
    symbol = OPERATIONS[expr.op]
    if expr.op in _INFIX:
        return f"({args[0]} {symbol} {args[1]})"
    if expr.op in ("is_null", "is_not_null"):
        return f"({args[0]} {symbol})"
    if expr.op in ("not", "neg", "bit_not"):
        return f"({symbol} {args[0]})"
    if expr.op == "in":
        return f"({args[0]} IN ({', '.join(args[1:])}))"
    if expr.op == "cast":
        return f"CAST({args[0]} AS {expr.type})"
    if expr.op == "try":
        return _tried(expr.args[0])
    if expr.op in ("array_item", "map_value"):
        return f"{args[0]}[{args[1]}]"
    if expr.op == "field":
        return f"{args[0]}.{quoted(str(getattr(expr.args[1], 'value', '')))}"
    if expr.op == "struct":
        names = [name for name, _ in expr.type.fields]
        parts = [f"{string(name)}, {arg}" for name, arg in zip(names, args, strict=True)]
        return f"named_struct({', '.join(parts)})"
    if expr.op == "element_at" and len(args) > 2:
        return f"try_element_at({', '.join(args[:2])})"
    if expr.op == "sort_array" and len(args) > 2:
        return f"array_sort({args[0]})"
    if expr.op in ("timestampadd", "timestampdiff"):
        unit = args[0].strip("'")
        return f"{symbol}({unit}, {args[1]}, {args[2]})"
    if expr.op in ("ltrim", "rtrim") and len(args) == 2:
        side = "LEADING" if expr.op == "ltrim" else "TRAILING"
        return f"TRIM({side} {args[1]} FROM {args[0]})"
    if expr.op == "case":
        pairs = zip(args[::2], args[1::2], strict=False)
        branches = " ".join(f"WHEN {when} THEN {then}" for when, then in pairs)
        otherwise = f" ELSE {args[-1]}" if len(args) % 2 else ""
        return f"CASE {branches}{otherwise} END"
    return f"{symbol}({', '.join(args)})"


def _tried(expr: Expr) -> str:
    """Return ``expr`` with Spark's ``try_`` function."""
    text = to_spark_text(expr)
    if not isinstance(expr, Call) or expr.op == "cast":
        return f"try_{text}"
    name = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide"}.get(expr.op)
    if name is None:
        return f"try_{text}"
    return f"try_{name}({', '.join(map(to_spark_text, expr.args))})"


def _literal(literal: Literal) -> str:
    value, kind = literal.value, literal.type.kind
    if kind is TypeKind.NULL:
        return "NULL"
    if value is None:
        return f"CAST(NULL AS {literal.type})"
    if isinstance(value, bool):
        return str(value).lower()
    if kind is TypeKind.STRING:
        return string(str(value))
    if kind is TypeKind.BINARY:
        return f"X'{bytes.fromhex(str(value)).hex()}'"
    if kind is TypeKind.DATE:
        return f"date_from_unix_date({int(value)})"
    if kind is TypeKind.TIMESTAMP:
        return f"timestamp_micros(CAST('{int(value)}' AS bigint))"
    if kind is TypeKind.TIMESTAMP_NTZ:
        return f"CAST(timestamp_micros(CAST('{int(value)}' AS bigint)) AS timestamp_ntz)"
    if kind is TypeKind.INTERVAL:
        return _interval(int(value))
    return f"CAST({_number(value)} AS {literal.type})"


def _number(value: object) -> str:
    text = str(value)
    named = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return f"'{named.get(text, text)}'"


def _interval(micros: int) -> str:
    days, rest = divmod(abs(micros), _MICROS_PER_DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if micros < 0 else ""
    clock = f"{hours:02d}:{minutes:02d}:{seconds:02d}.{fraction:06d}"
    return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"

"""Typed scalar expressions: the form in which filters, residuals and projections travel.

The planner builds them (from SQL or from a structured query), a ruleset carries them as JSON,
and the runtime compiles them to Arrow kernels. ``Column.alias`` is empty inside an expression
over one relation and a canonical label inside an expression over several.

>>> e = Call("gt", (Column("", "price", parse_type("int")), Literal(5, parse_type("int"))), BOOLEAN)
>>> str(e)
'(price > 5)'
>>> from_json(to_json(e)) == e
True
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.types import DataType, TypeKind, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOOLEAN = DataType(TypeKind.BOOLEAN)
INTERVAL = DataType(TypeKind.INTERVAL)
NULL = DataType(TypeKind.NULL)

#: Every operation of the language. Semantics are Spark's (ANSI mode, UTC); NULL in, NULL out
#: except for the logical, ``is_*``, ``coalesce``, ``case`` and ``eq_null_safe`` operations.
OPERATIONS = {
    "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq_null_safe": "<=>",
    "and": "AND", "or": "OR", "not": "NOT", "is_null": "IS NULL", "is_not_null": "IS NOT NULL",
    "in": "IN", "like": "LIKE",
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "neg": "-",
    "cast": "CAST", "coalesce": "coalesce", "case": "CASE",
    "lower": "lower", "upper": "upper", "length": "length", "substring": "substring",
    "concat": "concat", "trim": "trim", "abs": "abs",
    "year": "year", "month": "month", "day": "day", "hour": "hour", "minute": "minute",
    "second": "second",
    "timestamp_seconds": "timestamp_seconds", "timestamp_millis": "timestamp_millis",
    "timestamp_micros": "timestamp_micros", "unix_seconds": "unix_seconds",
    "unix_millis": "unix_millis", "unix_micros": "unix_micros",
}  # fmt: skip
_INFIX = {"eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "and", "or", "add", "sub", "mul",
          "div", "mod", "like"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A stream's column, seen through ``alias`` (a canonical label, or empty)."""

    alias: str
    name: str
    type: DataType

    def __str__(self) -> str:
        return f"{self.alias}.{self.name}" if self.alias else self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Dates are days, timestamps and intervals microseconds (ints), binary is hex."""

    value: bool | int | float | str | Decimal | None
    type: DataType

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if self.type.kind in (TypeKind.STRING, TypeKind.BINARY):
            return "'" + str(self.value).replace("'", "''") + "'"
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if self.type.kind in (
            TypeKind.DATE,
            TypeKind.TIMESTAMP,
            TypeKind.TIMESTAMP_NTZ,
            TypeKind.INTERVAL,
        ):
            return f"{self.type}'{self.value}'"
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """An operation over arguments; ``type`` is its result type.

    ``case`` takes condition, value pairs and an optional last ELSE value; ``in`` takes the
    tested value first; ``substring`` is (text, 1-based position, length).
    """

    op: str
    args: tuple[Expr, ...]
    type: DataType

    def __post_init__(self) -> None:
        if self.op not in OPERATIONS:
            raise PlannerError("unknown-operation", f"operation {self.op!r} is not supported")

    def __str__(self) -> str:
        args = [str(a) for a in self.args]
        if self.op in _INFIX and len(args) == 2:
            return f"({args[0]} {OPERATIONS[self.op]} {args[1]})"
        if self.op in ("is_null", "is_not_null"):
            return f"({args[0]} {OPERATIONS[self.op]})"
        if self.op == "cast":
            return f"cast({args[0]} as {self.type})"
        return f"{OPERATIONS[self.op]}({', '.join(args)})"


Expr: TypeAlias = Column | Literal | Call


@dataclass(frozen=True, slots=True)
class Output:
    """One column of a projection."""

    name: str
    expr: Expr


def columns(expr: Expr) -> Iterator[Column]:
    """Every column that ``expr`` reads, in order of appearance, repeats included."""
    if isinstance(expr, Column):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from columns(arg)


def size(expr: Expr, most: int) -> int:
    """How many terms ``expr`` has; counting stops a little above ``most``."""
    found, pending = 0, [expr]
    while pending and found <= most:
        found += 1
        term = pending.pop()
        if isinstance(term, Call):
            pending.extend(term.args)
    return found


def substitute(expr: Expr, replace: Callable[[Column], Expr]) -> Expr:
    """``expr`` with every column replaced by ``replace(column)``."""
    if isinstance(expr, Column):
        return replace(expr)
    if isinstance(expr, Call):
        return Call(expr.op, tuple(substitute(a, replace) for a in expr.args), expr.type)
    return expr


def to_json(expr: Expr) -> dict[str, Any]:
    """A JSON document for ``expr``; :func:`from_json` is its inverse."""
    if isinstance(expr, Column):
        return {"column": expr.name, "alias": expr.alias, "type": str(expr.type)}
    if isinstance(expr, Literal):
        value = str(expr.value) if isinstance(expr.value, Decimal | float) else expr.value
        return {"literal": value, "type": str(expr.type)}
    return {"op": expr.op, "args": [to_json(a) for a in expr.args], "type": str(expr.type)}


def from_json(doc: dict[str, Any]) -> Expr:
    """The expression that :func:`to_json` wrote.

    Raises:
        PlannerError: the document is not an expression.
    """
    kind = _any_type(doc["type"])
    if "column" in doc:
        return Column(doc["alias"], doc["column"], kind)
    if "literal" in doc:
        value = doc["literal"]
        if value is not None and kind.kind is TypeKind.DECIMAL:
            value = Decimal(value)
        elif value is not None and kind.kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
            value = float(value)
        return Literal(value, kind)
    if "op" in doc:
        return Call(doc["op"], tuple(from_json(a) for a in doc["args"]), kind)
    raise PlannerError("bad-expression", f"{doc!r} is no expression")


def _any_type(text: str) -> DataType:
    return {"interval": INTERVAL, "void": NULL}.get(text) or parse_type(text)

"""Typed scalar expressions of filters, residuals and projections.

The planner builds expressions (from SQL or from a structured query), a ruleset contains them as
JSON, and the runtime compiles them to Arrow kernels. ``Column.alias`` is empty inside an expression
over one relation and a canonical label inside an expression over several.

>>> from anabranch_contract.queries.types import parse_type
>>> e = Call("gt", (Column("", "price", parse_type("int")), Literal(5, parse_type("int"))), BOOLEAN)
>>> str(e)
'(price > 5)'
>>> codec.loads(codec.dumps(e), Call) == e
True
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from anabranch_contract import codec
from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.text_values import interval_text
from anabranch_contract.queries.types import (
    FLOATING,
    INTERVALS,
    TIMESTAMPS,
    DataType,
    TypeKind,
    whole_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Value: TypeAlias = bool | int | float | str | Decimal | None
else:
    #: Values of literals. In documents decimals are texts; the literal's type distinguishes them
    #: from strings.
    Value = Any

BOOLEAN = DataType(TypeKind.BOOLEAN)
INTERVAL = whole_interval(TypeKind.INTERVAL)
NULL = DataType(TypeKind.NULL)

#: Every operation of expressions. Semantics are Spark's (ANSI mode, UTC). A NULL argument makes the
#: result NULL, except for the logical, ``is_*``, ``coalesce``, ``case`` and ``eq_null_safe``
#: operations.
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
#: Operations whose SQL text is a call of the Spark function with their name.
FUNCTIONS = frozenset({
    # Dates and times
    "add_months", "date_add", "date_format", "date_trunc", "datediff", "dayofweek", "dayofyear",
    "from_utc_timestamp", "last_day", "make_date", "make_timestamp", "months_between", "next_day",
    "timestampadd", "timestampdiff", "timezone", "to_timestamp", "to_utc_timestamp", "trunc",
    "weekday", "weekofyear",
    # Numbers
    "acos", "asin", "atan", "atan2", "bround", "ceil", "cos", "degrees", "exp", "expm1", "floor",
    "hypot", "isnan", "ln", "log", "log10", "log1p", "log2", "pmod", "power", "radians", "rint",
    "shiftleft", "shiftright", "sign", "sin", "sqrt", "tan", "width_bucket",
    # Texts
    "ascii", "base64", "bin", "bit_length", "btrim", "char", "cidr_match", "conv", "crc32",
    "format_number", "format_string", "get_json_object", "hash", "hex", "initcap", "instr",
    "levenshtein", "locate", "lpad", "ltrim", "md5", "octet_length", "overlay", "parse_json",
    "parse_url",
    "regexp_count", "regexp_extract", "regexp_replace", "repeat", "replace", "reverse", "rlike",
    "rpad", "rtrim", "schema_of_variant", "sha1", "sha2", "soundex", "split", "split_part",
    "substring_index", "to_char", "translate", "unhex", "url_decode", "url_encode", "variant_get",
    "xxhash64",
    # Arrays, structs and maps
    "array", "array_compact", "array_concat", "array_contains", "array_distinct", "array_except",
    "array_intersect", "array_item", "array_join", "array_max", "array_min", "array_position",
    "array_remove", "array_repeat", "array_reverse", "array_union", "arrays_overlap", "element_at",
    "field", "flatten", "from_json", "get", "map_entries", "map_from_arrays", "map_from_entries",
    "map_keys", "map_value", "map_values", "sequence", "size", "slice", "sort_array", "struct",
    "to_json",
})  # fmt: skip
OPERATIONS |= {name: name for name in FUNCTIONS}
OPERATIONS |= {
    "array_concat": "concat", "array_reverse": "reverse", "div_int": "div",
    "try": "try", "constant": "constant", "bit_and": "&", "bit_or": "|",
    "bit_xor": "^", "bit_not": "~",
}  # fmt: skip
#: Higher-order functions. Arguments: number of the first parameter of their lambdas; arrays or maps
#: (of ``aggregate`` also the start value); bodies of the lambdas.
OF_FUNCTIONS = frozenset({
    "aggregate", "exists", "filter", "forall", "map_filter", "map_zip_with", "transform",
    "transform_keys", "transform_values", "zip_with",
})  # fmt: skip
#: A lambda's parameter, read in its body; the argument is the parameter's number.
PARAMETER = "parameter"
OPERATIONS |= {name: name for name in (*OF_FUNCTIONS, PARAMETER)}
#: Operation without arguments: the time of the batch that emits a result (:func:`dated`).
NOW = "current_timestamp"
OPERATIONS[NOW] = NOW
#: Call of a user's function (:mod:`anabranch_contract.connectors.user_functions`).
FUNCTION = "function"
OPERATIONS[FUNCTION] = FUNCTION
#: Operations for whose SQL text :func:`own_form` has a special rule.
OWN_FORMS = frozenset({FUNCTION, PARAMETER, *OF_FUNCTIONS})
#: Operations that never raise an error on columns and literals.
_TOTAL = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "and", "or", "not",
                    "is_null", "is_not_null", "in", "like"})  # fmt: skip
_INFIX = {"eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "and", "or", "add", "sub", "mul",
          "div", "mod", "div_int", "like", "bit_and", "bit_or", "bit_xor"}  # fmt: skip


class Term(msgspec.Struct, frozen=True, tag_field="term"):
    """One node of an expression; in JSON the field ``term`` distinguishes the kinds of nodes."""


class Column(Term, frozen=True, tag="column", rename={"name": "column"}):
    """A stream's column. ``alias`` is a canonical label, or empty if there is one relation."""

    alias: str
    name: str
    type: DataType

    def __str__(self) -> str:
        return f"{self.alias}.{self.name}" if self.alias else self.name


class Literal(Term, frozen=True, tag="literal", rename={"value": "literal"}):
    """A constant. Dates are days, timestamps and intervals microseconds (as ints), intervals of
    years and months are numbers of months, binary values are hexadecimal texts.

    Floats are finite, since JSON has no others. In documents decimals are texts.
    """

    value: Value
    type: DataType

    def __post_init__(self) -> None:
        value = self.value
        if isinstance(value, str) and self.type.kind is TypeKind.DECIMAL:
            force_setattr(self, "value", Decimal(value))
        elif isinstance(value, str) and self.type.kind in FLOATING:
            raise ValueError(f"{value!r} is not a value of a literal of type {self.type}")
        if isinstance(self.value, float) and not isfinite(self.value):
            raise ValueError(f"{value} is not a value of a literal")

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if self.type.kind in (TypeKind.STRING, TypeKind.BINARY):
            return "'" + str(self.value).replace("'", "''") + "'"
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if self.type.kind in INTERVALS and isinstance(self.value, int):
            return interval_text(self.value, self.type)
        if self.type.kind in TIMESTAMPS | {TypeKind.DATE}:
            return f"{self.type}'{self.value}'"
        return str(self.value)


class Call(Term, frozen=True, tag="call"):
    """An operation on arguments; ``type`` is its result type.

    Arguments of ``case``: pairs of condition and value, then optionally the ELSE value. Of ``in``:
    the tested value, then the list. Of ``substring``: text, position from 1, length.
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
        if self.op == "field" and isinstance(self.args[1], Literal):
            return f"{args[0]}.{self.args[1].value}"
        if self.op in ("array_item", "map_value"):
            return f"{args[0]}[{args[1]}]"
        if self.op == "cast":
            return f"cast({args[0]} as {self.type})"
        if self.op in OWN_FORMS:
            return own_form(self, args)
        if self.op == "try" and isinstance(self.args[0], Call) and self.args[0].op == "cast":
            return f"try_{args[0]}"
        return f"{OPERATIONS[self.op]}({', '.join(args)})"


Expr: TypeAlias = Column | Literal | Call


def own_form(call: Call, args: Sequence[str]) -> str:
    """Return the text of an operation in :data:`OWN_FORMS`: a lambda's parameter, or a call whose
    first argument is omitted. ``args``: texts of the arguments."""
    if call.op == PARAMETER:
        return f"x{args[0]}"
    name = called(call) if call.op == FUNCTION else call.op
    return f"{name}({', '.join(args[1:])})"


def called(call: Call) -> str:
    """Return name and version of the user's function that ``call`` calls."""
    first = call.args[0]
    return str(first.value).partition(" ")[0] if isinstance(first, Literal) else ""


class Output(codec.Row, frozen=True):
    """One output column of a SELECT list: its name and expression."""

    name: str
    expr: Expr


class Expansion(codec.Row, frozen=True):
    """An expansion of each row into rows for the elements of an array or the entries of a map.

    Attributes:
        name: alias of its columns: ``#1`` for the first expansion of a query, then ``#2``.
        value: the array or map; an expression over the joined streams and earlier expansions.
        outer: whether a row without elements stays, with NULLs in the added columns.
        position: whether the first added column is the position of the element, from 0.
        fields: whether the added columns are the fields of the elements, which are structs.
        conditions: conditions that rows must satisfy, over its columns and all columns before.
    """

    name: str
    value: Expr
    outer: bool = False
    position: bool = False
    fields: bool = False
    conditions: tuple[Expr, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The added columns: position (if any), then the element, its fields, or key and value."""
        kind, found = self.value.type, list[tuple[str, DataType]]()
        if self.position:
            found.append(("pos", DataType(TypeKind.INT)))
        if kind.kind is TypeKind.MAP:
            found += kind.fields
        elif self.fields:
            found += kind.element.fields
        else:
            found.append(("col", kind.element))
        return tuple(Column(self.name, name, of) for name, of in found)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The expressions that the expansion evaluates."""
        return (self.value, *self.conditions)

    def over(self, change: Callable[[Expr], Expr]) -> Expansion:
        """Return the expansion with ``change`` applied to its expressions."""
        conditions = tuple(change(one) for one in self.conditions)
        return msgspec.structs.replace(self, value=change(self.value), conditions=conditions)

    @property
    def called(self) -> str:
        """Name of the expansion's SQL function, such as ``explode``."""
        function = "inline" if self.fields else "posexplode" if self.position else "explode"
        return f"{function}{'_outer' if self.outer else ''}"

    def __str__(self) -> str:
        where = " AND ".join(map(str, self.conditions))
        return f"{self.name} = {self.called}({self.value})" + (f" WHERE {where}" if where else "")


def read_by(outputs: Iterable[Output], expansions: Iterable[Expansion]) -> Iterator[Column]:
    """Yield the columns of joined streams that a query's output columns and expansions read."""
    made, exprs = set[str](), [output.expr for output in outputs]
    for expansion in expansions:
        made.add(expansion.name)
        exprs += expansion.exprs
    for expr in exprs:
        yield from (column for column in columns(expr) if column.alias not in made)


def terms(expr: Expr) -> Iterator[Expr]:
    """Yield every term of the expression, beginning with ``expr`` itself."""
    yield expr
    if isinstance(expr, Call):
        for arg in expr.args:
            yield from terms(arg)


def columns(expr: Expr) -> Iterator[Column]:
    """Yield every column that ``expr`` reads, in order of appearance, with repeats."""
    if isinstance(expr, Column):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from columns(arg)


def is_null(expr: Expr) -> bool:
    """Whether ``expr`` is the literal NULL."""
    return isinstance(expr, Literal) and expr.value is None


def is_total(expr: Expr) -> bool:
    """Whether ``expr`` is a condition over columns and literals that can't raise an error."""
    if isinstance(expr, Call):
        return expr.op in _TOTAL and all(map(is_total, expr.args))
    return True


def size(expr: Expr, most: int) -> int:
    """Return the number of terms of ``expr``; counting stops soon after ``most``."""
    found, pending = 0, [expr]
    while pending and found <= most:
        found += 1
        term = pending.pop()
        if isinstance(term, Call):
            pending.extend(term.args)
    return found


def reads_clock(expr: Expr) -> bool:
    """Whether the value of ``expr`` depends on the time of the batch that computes it."""
    return any(isinstance(term, Call) and term.op == NOW for term in terms(expr))


def dated(expr: Expr, micros: int) -> Expr:
    """Return ``expr`` with the time ``micros`` (since 1970) in place of the batch's time."""
    if not reads_clock(expr):
        return expr
    assert isinstance(expr, Call)
    if expr.op == NOW:
        return Literal(micros, expr.type)
    return Call(expr.op, tuple(dated(arg, micros) for arg in expr.args), expr.type)


def substitute(expr: Expr, replace: Callable[[Column], Expr]) -> Expr:
    """Return ``expr`` with every column replaced by ``replace(column)``."""
    if isinstance(expr, Column):
        return replace(expr)
    if isinstance(expr, Call):
        return Call(expr.op, tuple(substitute(a, replace) for a in expr.args), expr.type)
    return expr

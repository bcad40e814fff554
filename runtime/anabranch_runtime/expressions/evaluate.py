"""Expressions over columns, as Spark evaluates them (ANSI mode, UTC), by Arrow kernels.

``evaluate`` returns a column of the Arrow type of ``expr.type``; ``filter_mask`` a mask of the rows
where all conjuncts are true. The planner has made implicit casts explicit, so operands have their
common type; numeric types and the two timestamp types may still differ, and are cast here.

**Errors.** Overflow, division by zero and an impossible cast raise :class:`ExpressionError`, but
only on rows where Spark evaluates the operation: the right side of ``AND`` if the left side is not
false, that of ``OR`` if the left side is not true, a branch of ``CASE`` on the rows that reach it,
a later argument if the earlier ones are not NULL. So ``CASE WHEN d <> 0 THEN n / d END`` is safe.
Conjuncts of a filter have no order in SQL: conjuncts that can't fail are evaluated first, and the
others only on the remaining rows.

**Spark's rules where Arrow differs.** NaN equals NaN and is greater than any number; -0.0 equals
0.0; decimal results have the call's type (:mod:`anabranch_runtime.expressions.arithmetic`); casts
are Spark's (:mod:`anabranch_runtime.expressions.casts`, which lists the few that are refused).

>>> from anabranch_contract.queries.types import parse_type
>>> price = Column("", "price", parse_type("int"))
>>> cheap = Call("lt", (price, Literal(5, parse_type("int"))), BOOLEAN)
>>> filter_mask([cheap], lambda c: pa.array([3, None, 7], pa.int32()), 3).tolist()
[True, False, False]

**Refused**, rather than evaluated wrongly: LIKE with a pattern that is not a literal; comparison of
values without an exact common type; the casts listed in :mod:`anabranch_runtime.expressions.casts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.connectors.user_functions import is_deterministic
from anabranch_contract.queries.coercion import common_type
from anabranch_contract.queries.expressions import (
    BOOLEAN,
    FUNCTION,
    PARAMETER,
    Call,
    Column,
    Expr,
    Literal,
    columns,
    is_null,
)
from anabranch_contract.queries.types import FLOATING, INTEGRAL, TIMESTAMPS, DataType, TypeKind
from anabranch_runtime.columns.arrays import (
    Bools,
    Ints,
    assemble,
    both,
    canonical,
    conform,
    fixed,
    joined,
    present,
    scatter,
    truths,
)
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import is_nested
from anabranch_runtime.errors import ColumnOverflow, ExpressionError, GatherOverflow
from anabranch_runtime.expressions import arithmetic, text, user_functions
from anabranch_runtime.expressions.casts import cast
from anabranch_runtime.expressions.functions.kernels import FALLIBLE, KERNELS
from anabranch_runtime.expressions.lambdas import LAMBDAS

Fetch = Callable[[Column], pa.Array]
_Part = TypeVar("_Part")

_COMPARE = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}
_BINARY = frozenset({"add", "sub", "mul", "div", "mod"})
_UNARY = frozenset({"neg", "abs"})
_PARTS = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
#: Arrow's error messages for columns that exceed its 32-bit offsets.
_OVERFLOW = re.compile("overflow|32bit|cannot contain more than")
_WIDTHS = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)


class _Frame:
    """The rows over which an expression is evaluated; each column is fetched once.

    Attributes:
        parameters: values of the parameters of enclosing lambdas, by number.
    """

    __slots__ = ("_columns", "_fetch", "length", "parameters")

    def __init__(
        self, fetch: Fetch, length: int, parameters: Mapping[int, pa.Array] | None = None
    ) -> None:
        self._fetch = fetch
        self.length = length
        self.parameters = parameters or {}
        self._columns: dict[Column, pa.Array] = {}

    def column(self, column: Column) -> pa.Array:
        found = self._columns.get(column)
        if found is None:
            found = self._columns[column] = conform(self._fetch(column), column.type)
        return found

    def subset(self, rows: Ints) -> _Frame:
        return self if len(rows) == self.length else self.at(rows, {})

    def at(self, rows: Ints, parameters: Mapping[int, pa.Array]) -> _Frame:
        """Return the frame of ``rows``, which may repeat, with additional lambda parameters."""
        picked = pa.array(rows)
        outer = {number: values.take(picked) for number, values in self.parameters.items()}
        return _Frame(lambda c: self.column(c).take(picked), len(rows), {**outer, **parameters})

    def value(self, expr: Expr) -> pa.Array:
        return _evaluate(expr, self)


def evaluate(expr: Expr, fetch: Fetch, length: int) -> pa.Array:
    """Evaluate ``expr`` on ``length`` rows; ``fetch`` returns a column's values.

    Raises:
        ExpressionError: evaluation fails on a row, as in Spark, or is not supported (see module).
    """
    parts = _in_parts(lambda frame: _evaluate(expr, frame), _Frame(fetch, length))
    try:
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    except pa.ArrowInvalid as error:
        raise _overflow(str(expr)) from error


def filter_mask(conjuncts: Sequence[Expr], fetch: Fetch, length: int) -> Bools | None:
    """Return the mask of rows where every conjunct is true (not false or NULL); None for all rows.

    Raises:
        ExpressionError: as :func:`evaluate`, on rows that no other conjunct excludes.
    """
    ordered = sorted(conjuncts, key=_fallible)
    parts = _in_parts(lambda f: (_mask(ordered, f), f.length), _Frame(fetch, length))
    return parts[0][0] if len(parts) == 1 else joined(parts)


def _in_parts(compute: Callable[[_Frame], _Part], frame: _Frame) -> list[_Part]:
    """Evaluate ``compute`` on the frame's rows, or on their halves if a result column overflows."""
    try:
        return [compute(frame)]
    except ColumnOverflow as error:
        if frame.length < 2 or isinstance(error, GatherOverflow):
            raise
    rows = np.arange(frame.length)
    halves = np.array_split(rows, 2)
    return [part for half in halves for part in _in_parts(compute, frame.at(half, {}))]


def _mask(conjuncts: Sequence[Expr], frame: _Frame) -> Bools | None:
    length, rows = frame.length, None
    for conjunct in conjuncts:
        part = frame if rows is None else frame.subset(rows)
        held = truths(_evaluate(conjunct, part))
        if not held.all():
            kept = np.flatnonzero(held)
            rows = kept if rows is None else rows[kept]
    if rows is None:
        return None
    mask = np.zeros(length, dtype=np.bool_)
    mask[rows] = True
    return mask


def _evaluate(expr: Expr, frame: _Frame) -> pa.Array:
    target = arrow_type(expr.type)
    if frame.length == 0:
        return pa.nulls(0, target)
    if isinstance(expr, Column):
        return frame.column(expr)
    if isinstance(expr, Literal):
        return pa.repeat(_scalar(expr), frame.length)
    alone = frame.length > 1 and not frame.parameters
    if alone and not any(columns(expr)) and is_deterministic(expr):
        once = _call(expr, _Frame(frame.column, 1))
        return pa.repeat(once[0], frame.length)
    return _call(expr, frame)


def _call(expr: Call, frame: _Frame) -> pa.Array:
    try:
        lazy = _LAZY.get(expr.op)
        if lazy is not None:
            return lazy(expr, frame)
        return _strict(expr, _arguments(expr, frame))
    except ExpressionError as error:
        error.field = error.field or str(expr)
        raise
    except pa.ArrowException as error:
        if isinstance(error, MemoryError):
            raise
        if _OVERFLOW.search(str(error)):
            raise _overflow(str(expr)) from error
        raise ExpressionError(
            "failed-kernel",
            f"Arrow can't compute it: {error}",
            field=str(expr),
            remedy="write the expression in another way",
        ) from error


def _overflow(field: str) -> ColumnOverflow:
    return ColumnOverflow(
        "too-long",
        "its values are longer than 2 GiB",
        field=field,
        remedy="shorten the values: left(x, 100)",
    )


def _strict(expr: Call, args: list[pa.Array]) -> pa.Array:
    op, target = expr.op, arrow_type(expr.type)
    kinds = [a.type for a in expr.args]
    if op in _COMPARE:
        return _compare_columns(op, *_met(args, kinds))
    if op in _BINARY:
        return _arithmetic(expr, args, kinds)
    if op in _UNARY:
        return arithmetic.unary(op, args[0], expr.type)
    if op == "cast":
        return cast(args[0], kinds[0], expr.type)
    if op == "not":
        return pc.invert(args[0])
    if op in _PARTS:
        return _calendar(op, args[0], kinds[0])
    if op == "like":
        return _like(expr, args[0])
    if op == "substring":
        size = args[2] if len(args) > 2 else pa.repeat(2**31 - 1, len(args[0]))
        return text.substring(args[0], args[1], size)
    if op == "concat":
        return text.concat(args, target)
    if op in KERNELS:
        return KERNELS[op](expr, args)
    simple = {"lower": text.lower, "upper": text.upper, "trim": text.trim, "length": text.length}
    if op not in simple:
        raise ExpressionError("unknown-operation", f"operation {op!r} is not supported")
    return pa.nulls(len(args[0]), target) if kinds[0].kind is TypeKind.NULL else simple[op](args[0])


# --- rows on which an operand is evaluated ------------------------------------------------------


@lru_cache(maxsize=4096)
def _fallible(expr: Expr) -> bool:
    """Whether evaluating the expression ``expr`` can fail on some row."""
    if not isinstance(expr, Call):
        return False
    if expr.op == "try":
        return any(_fallible(arg) for call in expr.args for arg in getattr(call, "args", ()))
    if expr.op in _BINARY | _UNARY:
        return not (expr.type.kind in FLOATING and expr.op not in ("div", "mod")) or any(
            map(_fallible, expr.args)
        )
    if expr.op == "cast" and not _widens(expr.args[0].type, expr.type):
        return True
    if expr.op in FALLIBLE or expr.op in (FUNCTION, "aggregate"):
        return True
    return any(map(_fallible, expr.args))


def _widens(source: DataType, target: DataType) -> bool:
    a, b = source.kind, target.kind
    if a in INTEGRAL and b in INTEGRAL:
        return _WIDTHS.index(a) <= _WIDTHS.index(b)
    if a in INTEGRAL and b is TypeKind.DECIMAL:
        return target.precision - target.scale >= 19
    if a is TypeKind.DECIMAL and b is TypeKind.DECIMAL:
        room = target.precision - target.scale
        return room >= source.precision - source.scale and target.scale >= source.scale
    if b is TypeKind.STRING:
        return a in INTEGRAL or a in FLOATING or a in (TypeKind.BOOLEAN, TypeKind.DECIMAL)
    return b is TypeKind.DOUBLE and a is not TypeKind.STRING


#: Operations whose result may be non-NULL although an argument is NULL.
_OF_NULLS = frozenset({"array", "array_repeat", "hash", "struct", "xxhash64"})


def _arguments(expr: Call, frame: _Frame) -> list[pa.Array]:
    """Evaluate the arguments of an operation that is NULL if any argument is. An argument that can
    fail is evaluated only on rows on which Spark evaluates it (a divisor before the dividend)."""
    order = list(range(len(expr.args)))
    if expr.op in ("div", "mod"):
        order.reverse()
    found: dict[int, pa.Array] = {}
    valid: Bools | None = None
    for i in order:
        arg = expr.args[i]
        if expr.op not in _OF_NULLS and valid is not None and not valid.all() and _fallible(arg):
            rows = np.flatnonzero(valid)
            found[i] = scatter(_evaluate(arg, frame.subset(rows)), rows, frame.length)
        else:
            found[i] = _evaluate(arg, frame)
        valid = both(valid, present(found[i]))
    return [found[i] for i in range(len(expr.args))]


def _connective(expr: Call, frame: _Frame) -> pa.Array:
    kernel, settles = (pc.and_kleene, False) if expr.op == "and" else (pc.or_kleene, True)
    result = _boolean(expr.args[0], frame)
    for arg in expr.args[1:]:
        open_rows = np.flatnonzero(truths(pc.fill_null(pc.not_equal(result, settles), True)))
        if _fallible(arg) and len(open_rows) < frame.length:
            part = scatter(_boolean(arg, frame.subset(open_rows)), open_rows, frame.length)
        else:
            part = _boolean(arg, frame)
        result = kernel(result, part)
    return result


def _boolean(expr: Expr, frame: _Frame) -> pa.Array:
    return cast(_evaluate(expr, frame), expr.type, BOOLEAN)


def _case(expr: Call, frame: _Frame) -> pa.Array:
    branches, default = divmod(len(expr.args), 2)
    left = np.arange(frame.length)
    pieces: list[tuple[Ints, pa.Array]] = []
    for i in range(branches):
        if len(left) == 0:
            break
        held = truths(_boolean(expr.args[2 * i], frame.subset(left)))
        pieces.append((left[held], _as(expr.args[2 * i + 1], expr.type, frame.subset(left[held]))))
        left = left[~held]
    if default and len(left):
        pieces.append((left, _as(expr.args[-1], expr.type, frame.subset(left))))
    return assemble(pieces, frame.length, arrow_type(expr.type))


def _coalesce(expr: Call, frame: _Frame) -> pa.Array:
    left = np.arange(frame.length)
    pieces: list[tuple[Ints, pa.Array]] = []
    for arg in expr.args:
        if len(left) == 0:
            break
        values = _as(arg, expr.type, frame.subset(left))
        valid = present(values)
        if valid is None:
            pieces.append((left, values))
            break
        pieces.append((left[valid], values.filter(pa.array(valid))))
        left = left[~valid]
    return assemble(pieces, frame.length, arrow_type(expr.type))


def _as(expr: Expr, kind: DataType, frame: _Frame) -> pa.Array:
    return cast(_evaluate(expr, frame), expr.type, kind)


def _null_test(expr: Call, frame: _Frame) -> pa.Array:
    values = _evaluate(expr.args[0], frame)
    return values.is_null() if expr.op == "is_null" else values.is_valid()


def _null_safe(expr: Call, frame: _Frame) -> pa.Array:
    args = [_evaluate(a, frame) for a in expr.args]
    a, b, _ = _met(args, [a.type for a in expr.args])
    same = pc.fill_null(_compare_columns("eq", *_met(args, [x.type for x in expr.args])), False)
    return pc.or_(same, pc.and_(a.is_null(), b.is_null()))


def _try(expr: Call, frame: _Frame) -> pa.Array:
    """Evaluate TRY of a call: NULL on rows where the call itself fails, not its arguments."""
    (call,) = expr.args
    assert isinstance(call, Call)
    args = _arguments(call, frame)
    changing = [place for place, arg in enumerate(call.args) if not isinstance(arg, Literal)]
    if len(changing) != 1 or frame.length == 1 or is_nested(args[changing[0]].type):
        return _strict_or_null(call, args)
    # Evaluated once per distinct value of the only argument that is not a literal.
    encoded = args[changing[0]].dictionary_encode()
    args = [arg[: len(encoded.dictionary)] for arg in args]
    args[changing[0]] = encoded.dictionary
    return _strict_or_null(call, args).take(encoded.indices)


def _strict_or_null(call: Call, args: list[pa.Array]) -> pa.Array:
    """Compute ``call`` of evaluated arguments; NULL on rows that fail, found by halving."""
    length = len(args[0])
    try:
        return _strict(call, args) if length else pa.nulls(0, arrow_type(call.type))
    except ExpressionError as error:
        if length == 1:
            if error.code == "unsupported":
                raise
            return pa.nulls(1, arrow_type(call.type))
    half = length // 2
    parts = ([arg[:half] for arg in args], [arg[half:] for arg in args])
    return pa.concat_arrays([_strict_or_null(call, part) for part in parts])


def _in(expr: Call, frame: _Frame) -> pa.Array:
    """Evaluate ``x IN (...)``: NULL if ``x`` is NULL, or if no item matches and one is NULL."""
    tested, items = expr.args[0], expr.args[1:]
    literals = [i for i in items if isinstance(i, Literal)]
    if len(literals) < len(items) or any(i.type != tested.type for i in items if not is_null(i)):
        return _in_sequence(expr, frame)
    values = canonical(_evaluate(tested, frame))
    known = [_scalar(i) for i in literals if not is_null(i)]
    result = pa.repeat(pa.scalar(False), frame.length)
    if known:
        wanted = canonical(pa.concat_arrays([pa.repeat(s, 1) for s in known]))
        result = pc.is_in(values, value_set=wanted)
    if len(known) < len(literals):
        result = pc.if_else(result, result, pa.scalar(None, pa.bool_()))
    return pc.if_else(values.is_valid(), result, pa.scalar(None, pa.bool_()))


def _in_sequence(expr: Call, frame: _Frame) -> pa.Array:
    tested, *items = expr.args
    chain: Expr = Call("eq", (tested, items[0]), BOOLEAN)
    for item in items[1:]:
        chain = Call("or", (chain, Call("eq", (tested, item), BOOLEAN)), BOOLEAN)
    return _evaluate(chain, frame)


def _of_user(expr: Call, frame: _Frame) -> pa.Array:
    """Call a user's function on all rows, including rows where an argument is NULL."""
    args = [_evaluate(arg, frame) for arg in expr.args[1:]]
    return user_functions.call(expr, args, frame.length)


def _parameter(expr: Call, frame: _Frame) -> pa.Array:
    """Return the values that a parameter of an enclosing lambda has on the frame's rows."""
    (number,) = expr.args
    assert isinstance(number, Literal)
    assert isinstance(number.value, int)
    return conform(frame.parameters[number.value], expr.type)


_LAZY: dict[str, Callable[[Call, _Frame], pa.Array]] = {
    FUNCTION: _of_user,
    PARAMETER: _parameter,
    **LAMBDAS,
    "and": _connective,
    "or": _connective,
    "case": _case,
    "coalesce": _coalesce,
    # Join key with the same value in all tuples, for joins without an equality.
    "constant": lambda _, frame: pa.repeat(pa.scalar(0, pa.int32()), frame.length),
    "is_null": _null_test,
    "is_not_null": _null_test,
    "eq_null_safe": _null_safe,
    "in": _in,
    "try": _try,
}


# --- values -------------------------------------------------------------------------------------


def _scalar(literal: Literal) -> pa.Scalar:
    value, kind = literal.value, literal.type.kind
    if value is not None and kind is TypeKind.BINARY:
        return pa.scalar(bytes.fromhex(str(value)), pa.binary())
    return pa.scalar(value, arrow_type(literal.type))


def _met(args: list[pa.Array], kinds: list[DataType]) -> tuple[pa.Array, pa.Array, DataType]:
    """Convert two operands to the type in which Spark compares them; return both, and the type."""
    kind = common_type(kinds[0], kinds[1])
    if kind is None:
        raise ExpressionError(
            "type-mismatch",
            f"{kinds[0]} and {kinds[1]} have no common type",
            remedy="cast one side in the query",
        )
    return cast(args[0], kinds[0], kind), cast(args[1], kinds[1], kind), kind


def _compare_columns(op: str, left: pa.Array, right: pa.Array, kind: DataType) -> pa.Array:
    if kind.kind is TypeKind.NULL:
        return pa.nulls(len(left), pa.bool_())
    if kind.kind is TypeKind.BOOLEAN:
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    result = _COMPARE[op](left, right)
    if kind.kind not in FLOATING:
        return result
    dtype = left.type.to_pandas_dtype()
    a, b = np.isnan(fixed(left, dtype)), np.isnan(fixed(right, dtype))
    if not (a.any() or b.any()):
        return result
    ordered = {
        "eq": a & b, "ne": a ^ b, "lt": ~a & b, "le": b, "gt": a & ~b, "ge": a,
    }  # fmt: skip
    return pc.if_else(pa.array(a | b), _masked(ordered[op], result), result)


def _masked(values: Bools, like: pa.Array) -> pa.Array:
    valid = present(like)
    return pa.array(values, mask=None if valid is None else ~valid)


def _arithmetic(expr: Call, args: list[pa.Array], kinds: list[DataType]) -> pa.Array:
    if TypeKind.NULL in (kinds[0].kind, kinds[1].kind):
        return pa.nulls(len(args[0]), arrow_type(expr.type))
    left, right = args
    if expr.type.kind is TypeKind.DECIMAL:
        # Convert integers to decimals of 19 digits, which hold every integer type.
        exact = DataType(TypeKind.DECIMAL, 19, 0)
        left = left if kinds[0].kind is TypeKind.DECIMAL else cast(left, kinds[0], exact)
        right = right if kinds[1].kind is TypeKind.DECIMAL else cast(right, kinds[1], exact)
    elif expr.type.kind in FLOATING:
        left, right = cast(left, kinds[0], expr.type), cast(right, kinds[1], expr.type)
    elif expr.type.kind in TIMESTAMPS and kinds[0].kind is TypeKind.DATE:
        left = cast(left, kinds[0], expr.type)
    return arithmetic.binary(expr.op, left, right, expr.type)


def _calendar(part: str, values: pa.Array, kind: DataType) -> pa.Array:
    if kind.kind is TypeKind.NULL:
        return pa.nulls(len(values), pa.int32())
    if kind.kind in TIMESTAMPS:
        # Drop the zone, as the values are in UTC and the kernel would need a zone database.
        values = values.view(pa.timestamp("us"))
    elif kind.kind is not TypeKind.DATE:
        raise ExpressionError("type-mismatch", f"{part}() takes a date or a timestamp")
    elif part in ("hour", "minute", "second"):
        values = cast(values, kind, DataType(TypeKind.TIMESTAMP_NTZ))
    return _PARTS[part](values).cast(pa.int32())


def _like(expr: Call, values: pa.Array) -> pa.Array:
    pattern, *escape = expr.args[1:]
    if any(map(is_null, expr.args)):
        return pa.nulls(len(values), pa.bool_())
    if not all(isinstance(a, Literal) for a in (pattern, *escape)):
        raise ExpressionError("unsupported", "the pattern of LIKE is not a literal")
    spelled = [str(a.value) for a in (pattern, *escape) if isinstance(a, Literal)]
    return text.like(values, *spelled)

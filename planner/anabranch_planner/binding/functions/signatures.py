"""Signatures of SQL functions: kinds of arguments, implicit casts as in Spark, types of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import BIGINT, DATE, DOUBLE, INT, STRING, TIMESTAMP
from anabranch_contract.queries.expressions import BOOLEAN, Call, Expr, Literal, is_null
from anabranch_contract.queries.types import (
    INTEGRAL,
    INTERVALS,
    NUMERIC,
    TIMESTAMPS,
    DataType,
    TypeKind,
)
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql.unresolved import unsupported

_MOMENTS = TIMESTAMPS | {TypeKind.DATE}
_INT = frozenset({TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT})


class Argument(Enum):
    """Kind of a function's argument: its type, the types that are cast to it implicitly, and its
    name in error messages."""

    TEXT = (STRING, NUMERIC | _MOMENTS | INTERVALS | {TypeKind.BOOLEAN}, "a text")
    DOUBLE = (DOUBLE, NUMERIC, "a number")
    INT = (INT, _INT, "an integer")
    BIGINT = (BIGINT, INTEGRAL, "an integer")
    DATE = (DATE, _MOMENTS, "a date")
    TIMESTAMP = (TIMESTAMP, _MOMENTS, "a timestamp")
    BINARY = (DataType(TypeKind.BINARY), frozenset({TypeKind.STRING}), "bytes or a text")
    BOOLEAN = (BOOLEAN, frozenset[TypeKind](), "true or false")
    #: The kind of a text argument that must be a literal.
    PATTERN = (STRING, frozenset[TypeKind](), "a literal text")

    @property
    def type(self) -> DataType:
        """Type to which arguments of this kind are cast."""
        return self.value[0]


def converted(name: str, arg: Expr, kind: Argument) -> Expr:
    """The typed argument ``arg``, cast to the type of ``kind``.

    Raises:
        QueryError: ``type-mismatch``; ``unsupported-sql``: a pattern is not a literal.
    """
    wanted, others, described = kind.value
    here = arg.type.kind
    if here is TypeKind.NULL or is_null(arg):
        return Literal(None, wanted)
    if kind is Argument.PATTERN and not (isinstance(arg, Literal) and here is TypeKind.STRING):
        raise unsupported(f"{name}() with {arg}, which is not {described},", "write it out")
    if here is wanted.kind or here in others:
        return coerce(arg, wanted)
    if isinstance(arg, Literal) and (here is TypeKind.STRING or here in INTEGRAL):
        folded = coerce(arg, wanted)
        if isinstance(folded, Literal):
            return folded
    raise QueryError(
        "type-mismatch",
        f"{name}() takes {described}, but {arg} is of type {arg.type}",
        remedy=f"write CAST({arg} AS {str(wanted).upper()})",
    )


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of an SQL function that the runtime has as an operation.

    Attributes:
        op: name of the operation. ``kinds``: kind of each argument.
        type: type of the result.
        least: minimum number of arguments; None: all. ``rest``: defaults of the last arguments.
        check: checks literal arguments, and may replace arguments.
    """

    op: str
    kinds: tuple[Argument, ...]
    type: DataType
    least: int | None = None
    rest: tuple[Literal, ...] = ()
    check: Callable[[list[Expr]], list[Expr]] | None = None

    def __call__(self, args: Sequence[Expr]) -> Expr:
        """The typed call.

        Raises:
            QueryError: a wrong type of argument, or a literal that is not valid.
        """
        given = [converted(self.op, arg, kind) for arg, kind in zip(args, self.kinds, strict=False)]
        missing = len(self.kinds) - len(given)
        given += self.rest[len(self.rest) - missing :] if missing else ()
        if any(map(is_null, given)):
            return Literal(None, self.type)
        if self.check is not None:
            given = self.check(given)
        return Call(self.op, tuple(given), self.type)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Rewriting of an SQL function's calls as an equivalent expression, with the minimum and
    maximum number of arguments (None: no maximum)."""

    least: int
    most: int | None
    made: Callable[[Sequence[Expr]], Expr]


def rewriting(signature: Signature) -> Rewriting:
    """The rewriting of a function's calls as the operation of ``signature``."""
    most = len(signature.kinds)
    return Rewriting(most if signature.least is None else signature.least, most, signature)


def text_of(arg: Expr) -> str:
    """The text of an SQL function's literal argument whose kind is ``PATTERN``."""
    assert isinstance(arg, Literal)
    return str(arg.value)


def bad_literal(name: str, literal: object, reason: str, remedy: str) -> QueryError:
    """The error for a literal argument that an SQL function does not allow."""
    return QueryError("bad-literal", f"{name}() with {literal}: {reason}", remedy=remedy)

"""Typed calls of users' own functions."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch_contract.connectors.user_functions import UserFunction
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import common_type
from anabranch_contract.queries.expressions import Call, Expr, Literal, is_null
from anabranch_contract.queries.types import DataType
from anabranch_planner.binding.functions.signatures import Argument, converted
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql.functions import check_arity

_KINDS = {kind.type: kind for kind in Argument if kind is not Argument.PATTERN}


def call_of(function: UserFunction, args: Sequence[Expr]) -> Call:
    """The typed call of a user's function; arguments are cast implicitly as for Spark's functions.

    Raises:
        QueryError: ``bad-arguments``, ``type-mismatch``.
    """
    wanted = function.parameters
    check_arity(function.name, len(args), len(wanted), len(wanted))
    pairs = zip(args, wanted, strict=True)
    return function.call([_cast_argument(function.name, arg, kind) for arg, kind in pairs])


def _cast_argument(name: str, arg: Expr, wanted: DataType) -> Expr:
    if arg.type == wanted:
        return arg
    if wanted in _KINDS:
        return converted(name, arg, _KINDS[wanted])
    folded = coerce(arg, wanted) if isinstance(arg, Literal) else None
    if is_null(arg) or isinstance(folded, Literal):
        return folded if isinstance(folded, Literal) else Literal(None, wanted)
    if common_type(arg.type, wanted) == wanted:
        return coerce(arg, wanted)
    raise QueryError(
        "type-mismatch",
        f"{name}() takes {wanted}, but {arg} is of type {arg.type}",
        remedy=f"write CAST({arg} AS {wanted.upper()})",
    )

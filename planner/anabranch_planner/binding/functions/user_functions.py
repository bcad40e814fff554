"""Calls of users' functions: types of arguments, and places that need repeatable values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from anabranch_contract.connectors.user_functions import UserFunction, calls
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import common_type
from anabranch_contract.queries.expressions import Call, Expr, Literal, Output, is_null
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.queries.types import DataType
from anabranch_planner.binding.functions.signatures import Argument, converted
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql.functions import check_arity

_KINDS = {kind.type: kind for kind in Argument if kind is not Argument.PATTERN}


def call_of(function: UserFunction, args: Sequence[Expr]) -> Call:
    """The typed call, with arguments converted as for Spark's functions.

    Raises:
        QueryError: ``bad-arguments``, ``type-mismatch``.
    """
    wanted = function.parameters
    check_arity(function.name, len(args), len(wanted), len(wanted))
    pairs = zip(args, wanted, strict=True)
    return function.call([_argument(function.name, arg, kind) for arg, kind in pairs])


def _argument(name: str, arg: Expr, wanted: DataType) -> Expr:
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


def check_repeatable(query: JoinQuery, streams: Mapping[str, Stream]) -> None:
    """Refuse functions that are not deterministic where values are computed more than once: in
    conditions, keys and post-join parts, and in results that may be deleted.

    Raises:
        QueryError: ``not-deterministic``.
    """
    varying = [call for call in _calls(query) if not UserFunction.of(call).deterministic]
    if not varying:
        return
    name = UserFunction.of(varying[0]).name
    selected = [call for one in query.planned for call in _calls(one.projection)]
    selected = [call for call in selected if not UserFunction.of(call).deterministic]
    changing = any(streams[r.stream].has_changes for p in query.planned for r in p.relations)
    why = ""
    if query.view is not None or query.outer is not None or changing:
        why = "in a query whose results may be deleted later"
    elif len(varying) > len(selected):
        why = "outside of the SELECT list"
    elif any(len({*one}) < len(one) for one in ([*_calls(p.projection)] for p in query.planned)):
        why = "for several columns, with the same arguments"
    if why:
        raise QueryError(
            "not-deterministic",
            f"{name}(), which is not deterministic, is called {why}",
            remedy="call it once in the SELECT list of a plain join; if equal arguments always"
            " have equal results, register it as deterministic",
        )


def _calls(value: Any) -> Iterator[Call]:
    """The calls of users' functions in a query or a part of it."""
    if isinstance(value, Call):
        yield from calls(value)
    elif isinstance(value, Output):
        yield from calls(value.expr)
    elif isinstance(value, tuple):
        for one in value:
            yield from _calls(one)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _calls(getattr(value, field.name))

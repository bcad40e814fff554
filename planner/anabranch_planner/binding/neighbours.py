"""Values of other rows of a partition, ``lag`` and ``lead``, by the order of the ranking."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import common_type
from anabranch_contract.queries.expressions import Column, Expr
from anabranch_contract.queries.views import PLACE, Neighbour
from anabranch_planner.binding.naming import bare
from anabranch_planner.binding.typecheck import coerce
from anabranch_planner.sql.unresolved import Node, called, describe, unsupported

#: Key of the metadata of a function of neighbours, without its OVER.
_MARK = "neighbour"


def as_neighbour(window: Node) -> Node:
    """The function of ``window``, ``lag`` or ``lead``, without its OVER."""
    made = called(window.this.copy(), describe(window))
    made.meta[_MARK] = True
    return made


def is_neighbour(node: Node) -> bool:
    """Whether ``node`` is made by :func:`as_neighbour`."""
    return _MARK in node.meta


def neighbour_of(call: Node, name: str, over: Callable[[Node], Expr]) -> Neighbour:
    """The neighbour ``name`` that ``lag`` or ``lead`` reads.

    Args:
        over: an argument as an expression over the joined rows' columns.

    Raises:
        QueryError: ``bad-arguments``; ``unsupported-sql``: a function inside the other.
    """
    function, arguments = str(call.this).lower(), call.expressions
    if not 1 <= len(arguments) <= 3:
        raise QueryError(
            "bad-arguments",
            f"{function}() takes one to three arguments, not {len(arguments)}",
            remedy=f"write {function}(x), {function}(x, 2) or {function}(x, 2, 0)",
        )
    distance = 1 if len(arguments) == 1 else whole_number(arguments[1])
    if distance is None:
        raise QueryError(
            "bad-arguments",
            f"the second argument of {function}() is {describe(arguments[1])}",
            remedy="write the number of rows",
        )
    value = over(arguments[0])
    if not isinstance(value, Column) or value.name == PLACE:
        raise unsupported(
            f"{function}() of a function over the same rows", "register one query for each"
        )
    default = None
    if len(arguments) == 3:
        found = over(arguments[2])
        kind = common_type(value.type, found.type)
        if kind != value.type:
            raise QueryError(
                "type-mismatch",
                f"the default of {function}() is of type {found.type}, and its argument of type "
                f"{value.type}",
                remedy="cast one of them",
            )
        default = coerce(found, value.type)
    return Neighbour(
        name, value.name, value.type, distance if function == "lag" else -distance, default
    )


def whole_number(node: Node) -> int | None:
    """The whole number that a literal is; None: another expression."""
    inside = bare(node)
    text = str(inside.this) if isinstance(inside, exp.Literal) and not inside.is_string else ""
    return int(text) if text.isdecimal() and len(text) < 10 else None

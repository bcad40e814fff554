"""What a SELECT list may show: types that can be written, each name once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_planner.errors import QueryError
from anabranch_planner.types import TypeKind

if TYPE_CHECKING:
    from collections.abc import Container

    from anabranch_planner.expr import Expr


def require_writable(name: str, expr: Expr) -> None:
    """Refuse an output of a type that exists inside expressions only.

    Raises:
        QueryError: ``unsupported-output``.
    """
    if expr.type.kind in (TypeKind.INTERVAL, TypeKind.NULL):
        raise QueryError(
            "unsupported-output",
            f"{name!r} is of type {expr.type}, which can't be written",
            remedy="cast it to the type that you want",
        )


def require_new(name: str, taken: Container[str], expr: Expr, *, star: bool = False) -> None:
    """Refuse a name that is among ``taken`` (in lower case); ``star``: a ``*`` brought it.

    Raises:
        QueryError: ``duplicate-name``.
    """
    if name.lower() in taken:
        raise QueryError(
            "duplicate-name",
            f"two output columns are called {name!r}",
            remedy=f"rename one: {expr} AS other_name" + (", in place of *" if star else ""),
        )

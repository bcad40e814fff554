"""A join query before its names are looked up: what SQL and structured documents both become."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from anabranch_planner.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A node of the parsed, still untyped expression tree.
Node: TypeAlias = exp.Expr


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of the FROM list; ``using`` are the columns of its USING clause."""

    stream: str
    alias: str
    using: tuple[str, ...] = ()
    field: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that must hold; it sees the first ``scope`` sources (an ON clause: not all)."""

    node: Node
    scope: int
    field: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the SELECT list; ``name`` is None where the user gave none.

    A star has no ``node``; ``qualifier`` is then the alias before it, or None.
    """

    node: Node | None
    name: str | None = None
    qualifier: str | None = None
    field: str = ""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A parsed query: sources in order, conditions (all must hold), select list."""

    sources: tuple[Source, ...]
    conditions: tuple[Condition, ...]
    items: tuple[Item, ...]


@contextmanager
def located(field: str) -> Iterator[None]:
    """Let a :class:`QueryError` without a field that is raised inside speak of ``field``."""
    try:
        yield
    except QueryError as error:
        if error.field or not field:
            raise
        raise QueryError(
            error.code, error.message, field=field, remedy=error.remedy
        ) from error.__cause__

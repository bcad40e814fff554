"""Nodes of logical plans that occur only in statements that cannot run continuously.

A query inside an expression is represented there by a mark; its plan is the last input of the node
with the expression. A common table expression that is read twice is one node with two readers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch_planner.logical.nodes import Conjunct, Filter, Node, ProjectedColumn


@dataclass(frozen=True, eq=False)
class Query(Node):
    """An uncorrelated query inside an expression, represented there by ``mark``."""

    mark: str

    def __str__(self) -> str:
        return f"Query {self.mark}"

    @property
    def aliases(self) -> frozenset[str]:
        """None: the query is a value for its reader."""
        return frozenset()


@dataclass(frozen=True, eq=False)
class Named(Node):
    """A query in FROM with a name, and with ``columns``."""

    alias: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"Named {self.alias}({', '.join(self.columns)})"

    @property
    def aliases(self) -> frozenset[str]:
        """The name of the query, as the only alias."""
        return frozenset((self.alias,))

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.alias


@dataclass(frozen=True, eq=False)
class Distinct(Node):
    """DISTINCT: every row once."""

    def __str__(self) -> str:
        return "Distinct"


@dataclass(frozen=True, eq=False)
class SetOperation(Node):
    """UNION, INTERSECT or EXCEPT of two inputs, with or without ALL."""

    kind: str

    def __str__(self) -> str:
        return self.kind.capitalize()


@dataclass(frozen=True)
class NestedCondition(Conjunct):
    """A condition that contains queries."""

    queries: tuple[Query, ...] = ()


@dataclass(frozen=True)
class NestedItem(ProjectedColumn):
    """An item of SELECT that contains queries."""

    queries: tuple[Query, ...] = ()


def queries_of(held: Iterable[Conjunct | ProjectedColumn]) -> tuple[Query, ...]:
    """Return the queries inside conditions or items."""
    nested = (h for h in held if isinstance(h, NestedCondition | NestedItem))
    return tuple(query for h in nested for query in h.queries)


def filtered(node: Node, conditions: Iterable[Conjunct]) -> Node:
    """Return ``node`` filtered by ``conditions``; ``node`` itself if there are none."""
    held = tuple(conditions)
    return Filter((node, *queries_of(held)), held) if held else node

"""Nodes of logical plans that only statements that cannot run have.

A query inside an expression is written there as a mark; its plan is an input of the node that holds
the expression, after the others. A common table expression that is named twice is one node with two
outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch_planner.logical.nodes import Conjunct, Filter, Node, ProjectedColumn


@dataclass(frozen=True, eq=False)
class Query(Node):
    """An uncorrelated query inside an expression, where ``mark`` stands for it."""

    mark: str

    def __str__(self) -> str:
        return f"Query {self.mark}"

    @property
    def aliases(self) -> frozenset[str]:
        """None: it is a value to its reader."""
        return frozenset()


@dataclass(frozen=True, eq=False)
class Named(Node):
    """A query in FROM, under a name, with ``columns``."""

    alias: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"Named {self.alias}({', '.join(self.columns)})"

    @property
    def aliases(self) -> frozenset[str]:
        """The name."""
        return frozenset((self.alias,))

    @property
    def name(self) -> str:
        """The name."""
        return self.alias


@dataclass(frozen=True, eq=False)
class Distinct(Node):
    """Every row once."""

    def __str__(self) -> str:
        return "Distinct"


@dataclass(frozen=True, eq=False)
class SetOperation(Node):
    """UNION, INTERSECT or EXCEPT of two inputs, perhaps ALL."""

    kind: str

    def __str__(self) -> str:
        return self.kind.capitalize()


@dataclass(frozen=True)
class NestedCondition(Conjunct):
    """A condition with queries inside."""

    queries: tuple[Query, ...] = ()


@dataclass(frozen=True)
class NestedItem(ProjectedColumn):
    """An item with queries inside."""

    queries: tuple[Query, ...] = ()


def queries_of(held: Iterable[Conjunct | ProjectedColumn]) -> tuple[Query, ...]:
    """The queries inside conditions or items."""
    nested = (h for h in held if isinstance(h, NestedCondition | NestedItem))
    return tuple(query for h in nested for query in h.queries)


def filtered(node: Node, conditions: Iterable[Conjunct]) -> Node:
    """``node`` under ``conditions``; itself if there are none."""
    held = tuple(conditions)
    return Filter((node, *queries_of(held)), held) if held else node

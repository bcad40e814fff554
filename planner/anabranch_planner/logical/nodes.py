"""The nodes of a logical plan: values that share their inputs.

A plan is a graph: a common table expression that is named twice is one node with two outputs.
Expressions are SQL text (Spark's dialect), in which every column is qualified by the name of the
table that shows it; what a rewriting has to know of them is kept beside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

#: A join's kind, as SQL calls it.
INNER, CROSS, LEFT, RIGHT, FULL, SEMI, ANTI = (
    "inner", "cross", "left", "right", "full", "semi", "anti",
)  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """A conjunct.

    Attributes:
        text: in SQL. A query inside is written ``__query_n__``: the ``n``-th of ``queries``.
        tables: those whose columns it reads.
        sides: of an equality between two tables: (table, expression) twice; None for others.
        queries: plans of the queries inside, which depend on nothing outside.
    """

    text: str
    tables: frozenset[str]
    sides: tuple[tuple[str, str], tuple[str, str]] | None = None
    queries: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Item:
    """A column of a projection, an aggregation or an order: an expression, and its name.

    ``text`` and ``queries`` are as in :class:`Condition`.
    """

    text: str
    name: str = ""
    queries: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class Scan:
    """A table under a name."""

    table: str
    alias: str


@dataclass(frozen=True, eq=False)
class Named:
    """A query under a name, with ``columns``; where it stands in FROM."""

    input: Node
    alias: str
    columns: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Filter:
    """The rows for which all conditions hold."""

    input: Node
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, eq=False)
class Exchange:
    """Rows sent to where their keys' hash says; without keys to everywhere."""

    input: Node
    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Join:
    """A binary join; of ``semi`` and ``anti`` only the left side's columns are left."""

    left: Node
    right: Node
    kind: str
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, eq=False)
class MultiJoin:
    """An inner join of several inputs in no order.

    Attributes:
        predicates: the equalities between two inputs.
        residual: the other conditions.
    """

    inputs: tuple[Node, ...]
    predicates: tuple[Condition, ...]
    residual: tuple[Condition, ...]


@dataclass(frozen=True, eq=False)
class Aggregate:
    """Rows grouped by ``keys`` (SQL text; also grouping sets), and what is computed of groups."""

    input: Node
    keys: tuple[str, ...]
    calls: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Project:
    """Expressions of rows, or of groups where the input is an aggregation."""

    input: Node | None
    items: tuple[Item, ...]


@dataclass(frozen=True, eq=False)
class Distinct:
    """Every row once."""

    input: Node


@dataclass(frozen=True, eq=False)
class Sort:
    """Rows in an order; ``by`` has directions in it."""

    input: Node
    by: tuple[Item, ...]


@dataclass(frozen=True, eq=False)
class Limit:
    """The first rows."""

    input: Node
    count: str
    offset: str = ""


@dataclass(frozen=True, eq=False)
class SetOperation:
    """UNION, INTERSECT or EXCEPT, perhaps ALL."""

    left: Node
    right: Node
    kind: str


Node: TypeAlias = (
    Scan | Named | Filter | Exchange | Join | MultiJoin | Aggregate | Project | Distinct
    | Sort | Limit | SetOperation
)  # fmt: skip


def inputs(node: Node) -> tuple[Node, ...]:
    """The inputs of a node in order, without the queries inside expressions."""
    if isinstance(node, Scan):
        return ()
    if isinstance(node, MultiJoin):
        return node.inputs
    if isinstance(node, Join | SetOperation):
        return node.left, node.right
    return () if node.input is None else (node.input,)


def queries(node: Node) -> tuple[Node, ...]:
    """The plans of queries inside the node's expressions."""
    holders: tuple[Condition | Item, ...] = ()
    if isinstance(node, Filter | Join):
        holders = node.conditions
    elif isinstance(node, MultiJoin):
        holders = (*node.predicates, *node.residual)
    elif isinstance(node, Project):
        holders = node.items
    elif isinstance(node, Sort):
        holders = node.by
    return tuple(query for holder in holders for query in holder.queries)


def shown(node: Node) -> frozenset[str]:
    """The tables whose columns a node shows to who reads it."""
    if isinstance(node, Scan | Named):
        return frozenset((node.alias,))
    if isinstance(node, Join) and node.kind in (SEMI, ANTI):
        return shown(node.left)
    return frozenset().union(*(shown(n) for n in inputs(node)))

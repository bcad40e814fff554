"""A parsed SQL query before name resolution, also from a structured document."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TypeAlias

from sqlglot import exp
from sqlglot.generators.spark import SparkGenerator

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_contract.queries.types import DataType
from anabranch_contract.queries.views import RankFunction

#: A node of the parsed expression tree, without types.
Node: TypeAlias = exp.Expr


#: SQL table functions, which expand one row into several.
GENERATORS = frozenset(
    f"{name}{outer}"
    for name in ("explode", "posexplode", "inline", "variant_explode")
    for outer in ("", "_outer")
)
#: Prefix of the names of hidden columns, which ``*`` omits.
HIDDEN = "anabranch hidden "
#: Entry for aggregates in :attr:`Unresolved.nested`, which otherwise names a clause.
AGGREGATES = "aggregates"
#: Key in the metadata of a node with a subquery: the subquery's number in
#: :attr:`Unresolved.subqueries`.
SUBQUERY = "subquery"
#: Key in a node's metadata: name of the column that the node replaces.
COLUMN = "column"
#: Key in a node's metadata: its text in messages.
_CALLED = "called"


@dataclass(frozen=True, slots=True)
class FromEntry:
    """One entry of the FROM list.

    Attributes:
        of: the stream's name, or a subquery.
        alias: its name in the rest of the query. None: a subquery without a name, or parentheses
            around joins, whose inner names stay visible. Empty: inner aliases get no prefix.
        using: the columns of its USING clause.
        natural: whether it is joined by all columns that both sides have (NATURAL JOIN).
        columns: new names of its columns, in order; empty: unchanged.
        types: types to which its columns are cast, in order; empty: unchanged.
        at_arrival: whether a left row is joined with the rows that are current when it arrives.
        crossed: whether it needs no join condition: after CROSS JOIN, or as a query of its own.
        field: the field of the structured query from which it comes.
        node: the syntax node of the statement from which it comes.
    """

    of: str | Unresolved
    alias: str | None
    using: tuple[str, ...] = ()
    natural: bool = False
    columns: tuple[str, ...] = ()
    field: str = ""
    node: Node | None = None
    types: tuple[DataType, ...] = ()
    at_arrival: bool = False
    crossed: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunct of ON or WHERE, which may read only the first ``scope`` sources of FROM."""

    node: Node
    scope: int
    field: str = ""


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One entry of the SELECT list; ``name`` is None if the user has given no name.

    A star has no ``node``; ``qualifier`` is then the alias before it, or None; ``without`` has the
    names (lower case) of its EXCEPT, ``replaced`` the items of its REPLACE; ``star`` is its node in
    the statement.
    """

    node: Node | None
    name: str | None = None
    qualifier: str | None = None
    field: str = ""
    without: frozenset[str] = frozenset()
    replaced: tuple[SelectItem, ...] = ()
    star: Node | None = dataclasses.field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RowRanking:
    """A ranking of joined rows by ``order`` in each partition; the first ``limit`` rows are kept.

    Attributes:
        aliases: whether the ranking's expressions may refer to aliases of the SELECT list.
    """

    function: RankFunction
    partition: tuple[Node, ...]
    order: tuple[exp.Ordered, ...]
    limit: int | None
    aliases: bool = False


@dataclass(frozen=True, slots=True)
class PostJoin:
    """The post-join clauses of an SQL statement.

    Attributes:
        distinct_on: the expressions of DISTINCT ON.
        group: the GROUP BY expressions, grouping sets among them; None: no GROUP BY.
        group_first: keys before GROUPING SETS in ``GROUP BY a, b GROUPING SETS (...)``.
        group_all: whether it is GROUP BY ALL.
        ranking: the ranking by QUALIFY, DISTINCT ON, or a condition over a ranking in a subquery.
        copies: expression for the number of result rows per group; None: one.
    """

    distinct: bool = False
    distinct_on: tuple[Node, ...] = ()
    group: tuple[Node, ...] | None = None
    group_first: tuple[Node, ...] = ()
    group_all: bool = False
    having: Node | None = None
    qualify: Node | None = None
    ranking: RowRanking | None = None
    copies: Node | None = None
    order: tuple[exp.Ordered, ...] = ()
    limit: Node | None = None
    offset: Node | None = None


@dataclass(frozen=True, slots=True)
class AsOf:
    """The ASOF or FOR SYSTEM_TIME AS OF clause of a join: at most one right row per left row.

    Attributes:
        match: the comparison of MATCH_CONDITION; None if ON or USING contains it.
        time: the time of FOR SYSTEM_TIME AS OF; None: an ASOF JOIN.
    """

    match: Node | None = None
    time: Node | None = None


@dataclass(frozen=True, slots=True)
class OuterSide:
    """The right side of an outer, semi, anti or ASOF join, after all inner joins of a statement.

    Attributes:
        on: the join condition; None: only the columns of USING are compared.
        asof: its ASOF or FOR SYSTEM_TIME AS OF clause; None: it has none.
    """

    kind: JoinKind
    source: FromEntry
    on: Node | None
    asof: AsOf | None = None

    @property
    def called(self) -> str:
        """Name of the join in messages, such as ``LEFT JOIN``."""
        kind = "" if self.kind is JoinKind.INNER else f"{self.kind.upper()} "
        return f"{'' if self.asof is None else 'ASOF '}{kind}JOIN"


@dataclass(frozen=True, slots=True)
class RowGenerator:
    """A table function in FROM or in the SELECT list, which returns a row per element of an array
    or per entry of a map.

    Attributes:
        call: the function's call. ``outer``: whether a row without elements is kept, with NULLs.
        alias: the table name of its columns; generated if the statement has none.
        columns: names of its columns; empty: the function's names.
        first: number of the first element in a last column (WITH ORDINALITY); None: no column.
        listed: whether it stands in the SELECT list, so that ``*`` does not show its columns.
    """

    call: exp.Anonymous
    outer: bool
    alias: str
    columns: tuple[str, ...] = ()
    first: int | None = None
    listed: bool = False

    def __str__(self) -> str:
        return f"{self.call.this}({', '.join(map(as_written, self.call.expressions))})"

    @property
    def function(self) -> str:
        """The name of the table function, without ``_outer``."""
        return str(self.call.this).lower().removesuffix("_outer")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the function's columns; if none are given, all names that Spark may use."""
        return self.columns or ("pos", "col", "key", "value")

    def follows(self, node: Node | None) -> bool:
        """Whether the table function is after ``node`` in the statement, or reads all of FROM."""
        own = None if self.listed else position_of(self.call)
        other = None if node is None else position_of(node)
        return own is None or other is None or own > other


@dataclass(frozen=True)
class Unresolved:
    """A parsed query before name resolution: sources, conditions (all must hold), select list.

    Without ``items`` it represents joins in parentheses, and has all columns of these.

    Attributes:
        post_join: post-join clauses; only in a whole statement, or in a subquery that becomes a
            query of its own (:mod:`.named`).
        outer: right sides of outer joins; only where ``post_join`` is allowed.
        nested: the clause that makes a subquery a query of its own, and the node of the clause.
        branches: operands of UNION ALL, which replace all other fields; only in a FROM list.
        generators: functions that expand the joined rows, in order.
        subqueries: the subqueries of SELECT list, WHERE, HAVING and ORDER BY, by the numbers in
            the metadata of their nodes (scalar subquery, EXISTS, IN).
    """

    sources: tuple[FromEntry, ...]
    conditions: tuple[Condition, ...]
    items: tuple[SelectItem, ...]
    post_join: PostJoin | None = None
    outer: tuple[OuterSide, ...] = ()
    nested: tuple[str, Node | None] | None = None
    branches: tuple[FromEntry, ...] = ()
    generators: tuple[RowGenerator, ...] = ()
    subqueries: Mapping[int, Unresolved] = field(default_factory=dict)

    def check_inlined(self) -> None:
        """Reject a subquery that would have to be inlined, but needs to be a query of its own.

        Raises:
            QueryError: ``unsupported-sql``, naming the clause.
        """
        if self.nested is not None and self.nested[0] != AGGREGATES:
            what, node = self.nested
            first = [*(one.node for one in self.items), *(one.node for one in self.sources)]
            with at(next(filter(None, first), None)), at(node):
                raise unsupported(
                    f"{what} in a subquery",
                    "the whole statement may have it; register the subquery as a query of its own",
                )

    @cached_property
    def has_union(self) -> bool:
        """Whether FROM has a UNION ALL, here or in a subquery that will be inlined."""
        inner = [entry.of for entry in self.sources if isinstance(entry.of, Unresolved)]
        return bool(self.branches) or any(o.nested is None and o.has_union for o in inner)

    @cached_property
    def aliases(self) -> int:
        """Maximum number of streams that a branch reads, after inlining of subqueries."""
        sources = (*self.sources, *(side.source for side in self.outer))
        counts = [1 if isinstance(s.of, str) else s.of.aliases for s in sources]
        branches = (1 if isinstance(s.of, str) else s.of.aliases for s in self.branches)
        return max(sum(counts), *branches, 0)

    @cached_property
    def size(self) -> int:
        """Number of streams that all branches read, after inlining of subqueries."""
        entries = (1 if isinstance(s.of, str) else s.of.size for s in self.entries)
        return sum(entries) + sum(inner.size for inner in self.subqueries.values())

    @property
    def entries(self) -> tuple[FromEntry, ...]:
        """All entries of FROM: sources of inner joins, and right sides of outer joins."""
        return (*self.sources, *(side.source for side in self.outer), *self.branches)

    @cached_property
    def has_subqueries(self) -> bool:
        """Whether expressions have subqueries, here or in FROM."""
        inner = (entry.of for entry in self.entries if not isinstance(entry.of, str))
        return bool(self.subqueries) or any(one.has_subqueries for one in inner)


class _SparkText(SparkGenerator):
    """Generator of SQL in Spark's dialect, also for clauses that Spark lacks."""

    SUPPORTS_WINDOW_EXCLUDE = True


def unsupported(what: str, remedy: str) -> QueryError:
    """The error for an unsupported SQL construct."""
    return QueryError("unsupported-sql", f"{what} is not supported", remedy=remedy)


@contextmanager
def located(field: str) -> Iterator[None]:
    """Attach ``field`` to a :class:`QueryError` raised in the block, for SQL or structured text."""
    try:
        yield
    except QueryError as error:
        if error.field or not field:
            raise
        raise error.moved(field=field) from error.__cause__


@contextmanager
def at(node: Node | None) -> Iterator[None]:
    """Attach the position of ``node`` to a :class:`QueryError` raised inside the block."""
    try:
        yield
    except QueryError as error:
        position = position_of(node) if error.position is None and node is not None else None
        if position is None:
            raise
        raise error.moved(position=position) from error.__cause__


def position_of(node: Node) -> tuple[int, int] | None:
    """Line and column, from 1, of the first token of ``node`` that the parser recorded."""
    found = [
        (int(meta["line"]), int(meta["col"]) - int(meta["end"]) + int(meta["start"]))
        for meta in (part.meta for part in node.walk() if part.meta)
        if "line" in meta and "start" in meta
    ]
    return min(found, default=None)


def operands(node: Node, kind: type[Node]) -> list[Node]:
    """The operands of a chain of one SQL connective ``kind``, in order, without parentheses."""
    found: list[Node] = []
    pending = [node]
    while pending:
        current = pending.pop()
        while isinstance(current, exp.Paren):
            current = current.this
        if isinstance(current, kind):
            pending += [current.expression, current.this]
        else:
            found.append(current)
    return found


def not_null(node: Node) -> Node:
    """The condition ``node IS NOT NULL``."""
    return exp.Not(this=exp.Is(this=node.copy(), expression=exp.Null()))


def conjunction(nodes: Iterable[Node]) -> Node:
    """AND of one or more nodes, which are not copied, but become children of the result."""
    return reduce(lambda a, b: exp.And(this=a, expression=b), nodes)


def bare(node: Node) -> Node:
    """``node`` without parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def describe(node: Node) -> str:
    """A short SQL rendering of ``node`` for error messages."""
    text = as_written(node)
    return text if len(text) <= 60 else text[:57] + "..."


#: Key in a node's metadata: output name of the column that the node replaces.
NAMED = "anabranch_named"


def called(node: Node, text: str) -> Node:
    """Make messages show, for ``node``, the text of the expression that it replaces."""
    node.meta[_CALLED] = text
    return node


def as_written(node: Node) -> str:
    """``node`` as SQL on one line; replaced expressions appear as the user wrote them."""

    def original(part: Node) -> Node:
        text = part.meta.get(_CALLED)
        return part if text is None else exp.Var(this=text)

    shown = node.transform(original) if any(_CALLED in n.meta for n in node.walk()) else node
    return re.sub(r"\s+", " ", _SparkText(dialect="spark").generate(shown))

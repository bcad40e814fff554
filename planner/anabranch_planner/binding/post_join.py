"""Split of a statement with aggregates, DISTINCT or LIMIT into join columns and post-join part.

The post-join clauses are brought into one language in three steps. First names are resolved: every
column becomes a *slot*, one per expression over the streams that columns stand for, and an alias of
the SELECT list is replaced by its expression. From then on equal terms are equal trees. Then each
tree is walked from its root: a GROUP BY expression becomes a key, an aggregate becomes a column,
and a remaining slot is an error. The joined rows carry the keys and the aggregates' arguments,
which the join computes; post-join expressions read only keys and aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from anabranch_contract.durations import parse_duration
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import TIMESTAMP
from anabranch_contract.queries.expressions import (
    BOOLEAN,
    Call,
    Column,
    Expr,
    Literal,
    Output,
    substitute,
)
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.types import TIMESTAMPS, DataType, TypeKind
from anabranch_contract.queries.views import (
    WINDOW_END,
    WINDOW_START,
    AggregateFunction,
    SortKey,
    TimeWindow,
    View,
    ViewAggregate,
)
from anabranch_planner.binding.naming import bare, spark_name
from anabranch_planner.binding.outputs import require_new, require_writable
from anabranch_planner.binding.typecheck import boolean, coerce, typed
from anabranch_planner.sql.aggregates import BIGINT, REFUSED, holds_aggregate, is_aggregate, kind_of
from anabranch_planner.sql.arguments import refuse_others
from anabranch_planner.sql.scope import Scope, ShownColumn
from anabranch_planner.sql.syntax import as_written, called, describe
from anabranch_planner.sql.unresolved import Node, PostJoin, Unresolved, at, unsupported

#: Prefix of the generated column names of slots; no user's name begins like this.
_SLOT = "anabranch slot "
_WINDOW = "window"
#: Prefix of the columns that replace scalar subqueries.
SCALAR = "scalar "
#: The joined rows' column to which time windows are applied.
_W = "w"
_INT = DataType(TypeKind.INT)
#: Maximum number of windows per row: a slide much shorter than the length multiplies rows.
MOST_WINDOWS = 1000


@dataclass(frozen=True, slots=True)
class Split:
    """A statement split into its join and its post-join part.

    Attributes:
        joined: the columns of the joined rows, as expressions over the streams of the scope.
        scalars: scalar subqueries, by the names of the columns that replace them.
    """

    joined: tuple[ShownColumn, ...]
    view: View
    scalars: tuple[tuple[str, JoinQuery], ...] = ()


def split(query: Unresolved, scope: Scope, inner: Callable[[Node], JoinQuery]) -> Split:
    """Split ``query``, whose sources have the columns of ``scope``, into join and post-join part.

    Args:
        inner: binds a scalar subquery to its join.

    Raises:
        QueryError: a column is neither grouped nor aggregated, a clause is not supported, or names
            or types do not fit.
    """
    splitter = _Splitter(query, scope, inner)
    joined, view = splitter.split()
    return Split(joined, view, tuple(splitter.scalars))


@dataclass(slots=True)
class _Splitter:
    query: Unresolved
    scope: Scope
    inner: Callable[[Node], JoinQuery]
    scalars: list[tuple[str, JoinQuery]] = field(default_factory=list)
    #: Expression over the streams -> number of the slot (generated column) that replaces it.
    _slots: dict[Expr, int] = field(default_factory=dict)
    #: Resolved expression -> the key or aggregate column that has its value.
    _terms: dict[Node, Column] = field(default_factory=dict)
    _keys: list[ShownColumn] = field(default_factory=list)
    _arguments: dict[Expr, str] = field(default_factory=dict)
    _aggregates: dict[tuple[AggregateFunction, str | None, bool], ViewAggregate] = field(
        default_factory=dict
    )
    _window: TimeWindow | None = None
    _window_tree: Node | None = None
    #: The resolved SELECT list, and its expressions by name (lower case).
    _trees: list[Node] = field(default_factory=list)
    _named: dict[str, Node] = field(default_factory=dict)

    @property
    def _clauses(self) -> PostJoin:
        assert self.query.post_join is not None
        return self.query.post_join

    def split(self) -> tuple[tuple[ShownColumn, ...], View]:
        clauses = self._clauses
        items = list(self._items())
        grouped = clauses.group is not None or clauses.having is not None or clauses.distinct
        grouped = grouped or any(holds_aggregate(node) for _, node in items)
        if clauses.distinct and (clauses.group or clauses.having):
            raise unsupported("DISTINCT with GROUP BY", "leave DISTINCT out, or group by more")
        trees = [(name, self._resolved(node, aliases=False)) for name, node in items]
        self._trees = [tree for _, tree in trees]
        self._named = {name.lower(): tree for name, tree in reversed(trees)}
        return self._grouped(trees) if grouped else self._ranked(trees)

    # --- post-join part: aggregation, or only ORDER BY and LIMIT -----------------------------

    def _grouped(self, trees: list[tuple[str, Node]]) -> tuple[tuple[ShownColumn, ...], View]:
        clauses = self._clauses
        for tree in self._groups():
            with at(tree):
                self._group_by(tree)
        projection = _outputs((name, self._over_groups(tree)) for name, tree in trees)
        having: Expr | None = None
        if clauses.having is not None:
            with at(clauses.having):
                having = self._condition(self._resolved(clauses.having))
        order = tuple(self._sorts(clauses.order))
        joined = [*self._keys, *(ShownColumn(name, e) for e, name in self._arguments.items())]
        if not joined:
            # count(*) needs no column, but Parquet files without columns lose the number of rows.
            joined.append(ShownColumn("one", Literal(1, _INT)))
        view = View(
            grouped=True,
            keys=tuple((k.name, k.expr.type) for k in self._keys if k.name != _W),
            aggregates=tuple(self._aggregates.values()),
            projection=projection,
            window=self._window,
            having=having,
            order=order,
            limit=self._limit(order),
            offset=self._offset(),
        )
        return tuple(joined), view

    def _ranked(self, trees: list[tuple[str, Node]]) -> tuple[tuple[ShownColumn, ...], View]:
        clauses = self._clauses
        if clauses.limit is None:
            with at(clauses.order[0] if clauses.order else None):
                raise unsupported(
                    "ORDER BY without LIMIT over joined rows" if clauses.order else "OFFSET",
                    "results never end, so they can't be sorted: add a LIMIT, or sort where "
                    "they are read",
                )
        columns: dict[Expr, str] = {}

        def column(tree: Node) -> Column:
            with at(tree):
                found = typed(tree, self._below())
                name = columns.setdefault(found, f"c{len(columns) + 1}")
                return Column("", name, found.type)

        projection = _outputs((name, column(tree)) for name, tree in trees)
        order = tuple(
            SortKey(column(self._resolved(o.this)), bool(o.args.get("desc")), _nulls_first(o))
            for o in clauses.order
        )
        view = View(
            grouped=False,
            keys=(),
            aggregates=(),
            projection=projection,
            order=order,
            limit=self._limit(order),
            offset=self._offset(),
        )
        return tuple(ShownColumn(name, e) for e, name in columns.items()), view

    # --- clauses -----------------------------------------------------------------------------

    def _items(self) -> Iterator[tuple[str, Node]]:
        """The SELECT list with ``*`` expanded: names and unresolved expressions."""
        for item in self.query.items:
            with at(item.node):
                if item.node is None:
                    table = item.qualifier and self.scope.table(item.qualifier)
                    for shown in table.columns if table else self.scope.visible:
                        yield shown.name, self._slot(shown.expr, None)
                    continue
                name = item.name if item.name is not None else _name_of(item.node)
                if not name:
                    raise QueryError(
                        "unnamed-output",
                        f"{describe(item.node)} has no name",
                        remedy="give it a name with AS",
                    )
                yield name, item.node

    def _groups(self) -> Iterator[Node]:
        """The GROUP BY expressions (of DISTINCT: the SELECT list), with names resolved."""
        clauses, items = self._clauses, self._trees
        if clauses.distinct:
            if any(holds_aggregate(tree) for tree in items):
                raise unsupported("DISTINCT of aggregates", "leave it out: there is one row")
            yield from items
            return
        if clauses.group is None:
            return
        if clauses.group_all:
            yield from (tree for tree in items if not holds_aggregate(tree))
            return
        for node in clauses.group:
            if isinstance(node, exp.Literal) and not node.is_string:
                with at(node):
                    yield items[_ordinal(node, len(items))]
            else:
                yield self._resolved(node, aliases_last=True)

    def _sorts(self, order: Iterable[exp.Ordered]) -> Iterator[SortKey]:
        for entry in order:
            node = entry.this
            with at(node):
                if isinstance(node, exp.Literal) and not node.is_string:
                    tree = self._trees[_ordinal(node, len(self._trees))]
                else:
                    tree = self._resolved(node)
                found = self._over_groups(tree)
            yield SortKey(found, bool(entry.args.get("desc")), _nulls_first(entry))

    def _limit(self, order: Sequence[SortKey]) -> int | None:
        clauses = self._clauses
        if clauses.limit is None:
            if clauses.offset is not None:
                with at(clauses.offset):
                    raise unsupported("OFFSET without LIMIT", "give a LIMIT")
            return None
        with at(clauses.limit):
            if not order:
                raise unsupported(
                    "LIMIT without ORDER BY", "say with ORDER BY which rows are wanted"
                )
            return _count(clauses.limit, "LIMIT")

    def _offset(self) -> int:
        offset = self._clauses.offset
        return 0 if offset is None else _count(offset, "OFFSET")

    # --- names -------------------------------------------------------------------------------

    def _resolved(self, node: Node, *, aliases: bool = True, aliases_last: bool = False) -> Node:
        """``node`` with columns replaced by slots (numbered expressions over streams), and aliases
        of the SELECT list by their expressions."""

        def found(part: Node) -> Node:
            if isinstance(part, exp.Subquery):
                # Names inside a subquery are resolved in its own scope.
                return exp.Placeholder(this=self._scalar(part))
            if not isinstance(part, exp.Column):
                return part
            if part.table.lower() == _WINDOW and self.scope.find_table(_WINDOW) is None:
                return part
            name = part.name.lower()
            if part.name.startswith(_SLOT):
                return part
            if aliases and not aliases_last and not part.table and name in self._named:
                return self._named[name].copy()
            with at(part):
                try:
                    return self._slot(self.scope.column(part.name, part.table), part)
                except QueryError:
                    if aliases_last and not part.table and name in self._named:
                        return self._named[name].copy()
                    raise

        return bare(_replaced(node, found))

    def _scalar(self, node: exp.Subquery) -> str:
        with at(node):
            refuse_others(node, {"this"})
            query = self.inner(node.this)
            if len(query.shown) != 1 or query.view is None or query.view.identity:
                raise unsupported(
                    "a scalar subquery that is not one aggregate",
                    "select one aggregate of all rows",
                )
            name = f"{SCALAR}{len(self.scalars) + 1}"
            self.scalars.append((name, query))
            return name

    def _slot(self, expr: Expr, node: Node | None) -> Node:
        number = self._slots.setdefault(expr, len(self._slots))
        made = exp.Column(this=exp.Identifier(this=f"{_SLOT}{number}", quoted=True))
        if node is not None:
            kept = node if "line" in node.meta else node.this
            made.this.meta.update(kept.meta)
        return called(made, str(expr) if node is None else describe(node))

    def _below(self) -> Scope:
        """Scope that resolves slots to their expressions, for typechecking."""
        return Scope(visible=tuple(ShownColumn(f"{_SLOT}{n}", e) for e, n in self._slots.items()))

    # --- keys and aggregates -----------------------------------------------------------------

    def _group_by(self, tree: Node) -> None:
        if isinstance(tree, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise unsupported(tree.key.upper(), "register one query for each grouping")
        if holds_aggregate(tree):
            raise QueryError(
                "misplaced-aggregate",
                "GROUP BY contains an aggregate",
                remedy="group by columns of the joined rows",
            )
        if _is_call(tree, _WINDOW):
            self._group_by_window(tree)
            return
        if tree in self._terms:
            return
        found = typed(tree, self._below())
        if found.type.kind in (TypeKind.INTERVAL, TypeKind.NULL):
            raise QueryError(
                "unsupported-output",
                f"{found.type} can't be grouped by",
                remedy="cast it to the type that you want",
            )
        known = next((k for k in self._keys if k.expr == found), None)
        if known is None:
            known = ShownColumn(f"k{len(self._keys) + 1}", found)
            self._keys.append(known)
        self._terms[tree] = Column("", known.name, found.type)

    def _group_by_window(self, tree: Node) -> None:
        if self._window is not None:
            if tree == self._window_tree:
                return
            raise unsupported("a second window", "register one query for each window")
        arguments = tree.expressions
        if not 2 <= len(arguments) <= 4:
            raise QueryError(
                "bad-arguments",
                f"window() takes a time, a length, a slide and a start, not {len(arguments)} "
                "arguments",
                remedy="write window(ts, '10 minutes'[, '5 minutes'[, '1 minute']])",
            )
        time = typed(arguments[0], self._below())
        if time.type.kind not in TIMESTAMPS:
            raise QueryError(
                "type-mismatch",
                f"window() takes a timestamp, its argument is of type {time.type}",
                remedy="cast it to a TIMESTAMP first",
            )
        length, *rest = (_micros(node) for node in arguments[1:])
        slide, start = rest[0] if rest else length, rest[1] if len(rest) > 1 else 0
        if length <= 0 or slide <= 0 or slide > length or abs(start) >= slide:
            raise QueryError(
                "bad-window",
                "the slide of a window is positive and at most its length, its start is less "
                "than the slide",
                remedy="write window(ts, '10 minutes', '5 minutes')",
            )
        if length > slide * MOST_WINDOWS:
            raise QueryError(
                "bad-window",
                f"every row would be in more than {MOST_WINDOWS} windows",
                remedy="give a longer slide",
            )
        self._window_tree = tree
        self._window = TimeWindow(_W, length, slide, start)
        self._keys.append(ShownColumn(_W, coerce(time, TIMESTAMP)))

    def _over_groups(self, tree: Node) -> Expr:
        """The resolved expression ``tree`` in terms of the group's keys and aggregates."""
        with at(tree):
            names: dict[str, Column] = {}

            def found(part: Node) -> Node:
                column = self._column(part)
                if column is None:
                    if isinstance(part, exp.Column):
                        self._refuse_ungrouped(part)
                    return part
                # Errors quote the SQL as written, not the generated column.
                text = as_written(part)
                if names.setdefault(text, column) != column:
                    names[column.name], text = column, column.name
                made = exp.Column(this=exp.Identifier(this=text, quoted=True))
                return called(made, describe(part))

            rewritten = _replaced(tree, found)
            shown = (ShownColumn(n, Column("", n, c.type)) for n, c in names.items())
            return substitute(
                typed(rewritten, Scope(visible=tuple(shown))), lambda c: names[c.name]
            )

    def _condition(self, tree: Node) -> Expr:
        found = self._over_groups(tree)
        if found.type != BOOLEAN:
            raise QueryError(
                "type-mismatch",
                f"the condition is of type {found.type}",
                remedy="write a comparison",
            )
        return found

    def _column(self, part: Node) -> Column | None:
        """The key or aggregate column equal to the subexpression ``part``, or None."""
        if part in self._terms:
            return self._terms[part]
        if isinstance(part, exp.Placeholder) and str(part.this).startswith(SCALAR):
            query = dict(self.scalars)[str(part.this)]
            return Column("", str(part.this), query.shown[0].expr.type)
        if isinstance(part, exp.Filter):
            return self._aggregate(part.this, part.expression.this)
        if is_aggregate(part):
            return self._aggregate(part, None)
        edge = self._window_edge(part)
        if edge is not None:
            return Column("", edge, TIMESTAMP)
        return None

    def _window_edge(self, part: Node) -> str | None:
        edge = None
        if isinstance(part, exp.Column) and part.table.lower() == _WINDOW:
            edge = part.name.lower()
        elif isinstance(part, exp.Dot) and _is_call(part.this, _WINDOW):
            if self._window_tree is not None and part.this != self._window_tree:
                raise unsupported("a window other than the one in GROUP BY", "group by it")
            edge = part.expression.name.lower()
        if edge is None:
            return None
        with at(part):
            if self._window is None:
                raise QueryError(
                    "not-grouped", "GROUP BY has no window", remedy="add GROUP BY window(...)"
                )
            if edge not in ("start", "end"):
                raise QueryError(
                    "unknown-column",
                    f"a window has no {edge!r}",
                    remedy="it has window.start and window.end",
                )
        return WINDOW_START if edge == "start" else WINDOW_END

    def _aggregate(self, call: Node, where: Node | None) -> Column:
        with at(call):
            name = str(call.this).lower()
            if name in REFUSED:
                raise unsupported(f"{name}()", REFUSED[name])
            arguments, distinct = list(call.expressions), False
            if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
                arguments, distinct = list(arguments[0].expressions), True
            for node in (*arguments, *([where] if where is not None else [])):
                if holds_aggregate(node):
                    raise QueryError(
                        "misplaced-aggregate",
                        f"{name}() contains another aggregate",
                        remedy="aggregate once; register another query over the results",
                    )
            if len(arguments) != 1:
                raise QueryError(
                    "bad-arguments",
                    f"{name}() takes one argument, not {len(arguments)}",
                    remedy="write one expression",
                )
            condition = None if where is None else boolean(where, self._below())
            if isinstance(arguments[0], exp.Star):
                if name != "count" or distinct:
                    raise unsupported(f"{name}(*)", "name a column")
                if condition is None:
                    return self._added(AggregateFunction.COUNT, None, BIGINT, distinct=False)
                value: Expr = Literal(1, _INT)
            else:
                value = typed(arguments[0], self._below())
            kind = kind_of(name, value.type, distinct=distinct)
            if name == "count_if":
                value = Call("case", (value, Literal(1, _INT)), _INT)
            if condition is not None:
                value = Call("case", (condition, value), value.type)
            distinct = distinct and kind.function is AggregateFunction.COUNT
            return self._added(kind.function, value, kind.type, distinct=distinct)

    def _added(
        self, function: AggregateFunction, value: Expr | None, type_: DataType, *, distinct: bool
    ) -> Column:
        column = None
        if value is not None:
            key = next((k.name for k in self._keys if k.expr == value and k.name != _W), None)
            column = key or self._arguments.setdefault(value, f"a{len(self._arguments) + 1}")
        what = (function, column, distinct)
        if what not in self._aggregates:
            name = f"g{len(self._aggregates) + 1}"
            self._aggregates[what] = ViewAggregate(name, function, column, distinct, type_)
        return Column("", self._aggregates[what].name, type_)

    def _refuse_ungrouped(self, part: exp.Column) -> None:
        expr = next((e for e, n in self._slots.items() if part.name == f"{_SLOT}{n}"), None)
        with at(part):
            raise QueryError(
                "not-grouped",
                f"{part.name if expr is None else expr} is neither grouped by nor aggregated",
                remedy="add it to GROUP BY, or aggregate it, e.g. with max()",
            )


def _replaced(tree: Node, found: object) -> Node:
    """``tree`` with nodes replaced by ``found``, top-down; replacements are not visited."""
    return tree.copy().transform(found, copy=False)  # type: ignore[arg-type]


def _is_call(node: Node, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == name


def _name_of(node: Node) -> str | None:
    """Spark's name of a SELECT item, which may contain aggregates."""
    inside = bare(node)
    if isinstance(inside, exp.Column) and inside.table.lower() == _WINDOW:
        return inside.name
    if is_aggregate(inside):
        name = str(inside.this).lower()
        if len(inside.expressions) == 1:
            argument = inside.expressions[0]
            if isinstance(argument, exp.Star):
                return f"{name}(1)"
            inner = spark_name(argument)
            return None if inner is None else f"{name}({inner})"
        return None
    return spark_name(node)


def _ordinal(node: Node, count: int) -> int:
    text = str(node.this)
    if not text.isdecimal() or not 1 <= int(text) <= count:
        raise QueryError(
            "bad-ordinal",
            f"{text} is no position in the SELECT list",
            remedy=f"write a number from 1 to {count}, or the expression itself",
        )
    return int(text) - 1


def _count(node: Node, what: str) -> int:
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    if not text.isdecimal() or int(text) > 10**9:
        raise QueryError(
            "bad-literal",
            f"{what} {describe(node)} is no number of rows",
            remedy="write a whole number up to 1000000000",
        )
    return int(text)


def _micros(node: Node) -> int:
    text = None
    if isinstance(node, exp.Literal) and node.is_string:
        text = str(node.this)
    elif isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        text = str(node.this.this) + (f" {unit.name}" if unit is not None else "")
    if text is None:
        raise QueryError(
            "bad-window",
            f"{describe(node)} is no duration",
            remedy="write e.g. '10 minutes'",
        )
    return parse_duration(text.lower())


def _nulls_first(entry: exp.Ordered) -> bool:
    given = entry.args.get("nulls_first")
    return bool(given) if given is not None else not entry.args.get("desc")


def _outputs(found: Iterable[tuple[str, Expr]]) -> tuple[Output, ...]:
    """The SELECT list as output columns; names must be distinct, and types writable to sinks."""
    outputs: dict[str, Output] = {}
    for name, expr in found:
        require_writable(name, expr)
        require_new(name, outputs, expr)
        outputs[name.lower()] = Output(name, expr)
    return tuple(outputs.values())

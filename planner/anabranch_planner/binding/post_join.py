"""Split of a statement with aggregates, DISTINCT or LIMIT into its join and its post-join part.

First, names are resolved: every column becomes a *slot*, a placeholder for an expression over the
streams (equal expressions share one), and an alias of the SELECT list is replaced by its
expression. After that, equal terms are equal trees. Then each tree is walked from its root: a GROUP
BY expression becomes a key, an aggregate becomes a column, and a remaining slot is an error. The
join computes the keys and the aggregates' arguments as columns of the joined rows; post-join
expressions read only keys and aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import TIMESTAMP
from anabranch_contract.queries.expressions import (
    BOOLEAN,
    Column,
    Expr,
    Literal,
    Output,
    columns,
    substitute,
)
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import (
    GROUPING_ID,
    PAIRS,
    PLACE,
    WINDOW_END,
    WINDOW_START,
    WINDOWED,
    RankFunction,
    SortKey,
    TimeWindow,
    View,
    Windowed,
)
from anabranch_planner.binding.aggregation import Aggregation
from anabranch_planner.binding.functions.collections import require_comparable
from anabranch_planner.binding.grouping import Grouping, bits, chosen_by_set, grouping_of
from anabranch_planner.binding.literals import coerce
from anabranch_planner.binding.naming import spark_name
from anabranch_planner.binding.outputs import (
    OutputNames,
    lateral,
    owner_of,
    require_new,
    require_writable,
    starred,
)
from anabranch_planner.binding.rankings import is_windowed, windowed_of
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.binding.windows import (
    WINDOW,
    WINDOWS,
    independent,
    is_window,
    keyed,
    no_window,
    window_of,
    window_value,
)
from anabranch_planner.sql.aggregates import call_of, holds_aggregate
from anabranch_planner.sql.arguments import refuse_others
from anabranch_planner.sql.scope import Scope, ShownColumn
from anabranch_planner.sql.unresolved import (
    HIDDEN,
    NAMED,
    Node,
    PostJoin,
    Unresolved,
    as_written,
    at,
    bare,
    called,
    describe,
    unsupported,
)

#: Prefix of the generated column names of slots; no name of a user begins with it.
_SLOT = "anabranch slot "
#: Prefix of the generated names of columns that replace scalar subqueries.
SCALAR = "scalar "
#: Column of the joined rows with the time to which windows of GROUP BY are applied.
_W = "w"
_INT, _BIGINT = DataType(TypeKind.INT), DataType(TypeKind.BIGINT)
_GROUPING = ("grouping", "grouping_id")
#: Aggregates whose Spark names contain both arguments; aggregates with uncertain Spark names.
_OF_TWO = frozenset({"max_by", "min_by", *PAIRS})
_UNCERTAIN = frozenset({"listagg", "string_agg"})


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


def split(query: Unresolved, scope: Scope, inner: Callable[[Node], JoinQuery]) -> Split | None:
    """Split ``query``, whose sources have the columns of ``scope``, into join and post-join part.
    Return None if it has no post-join part, or only an ORDER BY, which is ignored without LIMIT.

    Args:
        inner: binds a scalar subquery.

    Raises:
        QueryError: a column is neither grouped nor aggregated, a clause is not supported, or names
            or types do not fit.
    """
    if query.post_join is None:
        return None
    if sorts_only(query):
        # Check names and types of ORDER BY although it has no effect.
        limited = replace(query.post_join, limit=exp.Literal.number(1))
        _Splitter(replace(query, post_join=limited), scope, inner).split()
        return None
    splitter = _Splitter(query, scope, inner)
    joined, view = splitter.split()
    return Split(joined, view, tuple(splitter.scalars))


def sorts_only(query: Unresolved) -> bool:
    """Whether ORDER BY is the only post-join clause, and there is no aggregate."""
    clauses = query.post_join
    if clauses is None or clauses != PostJoin(order=clauses.order):
        return False
    return not any(item.node is not None and holds_aggregate(item.node) for item in query.items)


@dataclass(slots=True)
class _Splitter:
    query: Unresolved
    scope: Scope
    inner: Callable[[Node], JoinQuery]
    scalars: list[tuple[str, JoinQuery]] = field(default_factory=list)
    #: Expression over the streams -> number of its slot (placeholder column).
    _slots: dict[Expr, int] = field(default_factory=dict)
    #: Resolved expression -> the column of the key or aggregate that has its value.
    _terms: dict[Node, Column] = field(default_factory=dict)
    _keys: list[ShownColumn] = field(default_factory=list)
    #: GROUPING SETS as positions of keys; empty: one set of all keys.
    _sets: tuple[tuple[int, ...], ...] = ()
    _aggregation: Aggregation = field(default_factory=Aggregation)
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
        trees = [(name, self._resolved(node, aliases=False)) for name, node in items]
        self._trees = [tree for _, tree in trees]
        self._named = {name.lower(): tree for name, tree in reversed(trees)}
        return self._grouped(trees) if grouped else self._ranked(trees)

    # --- post-join part: aggregation, or only ORDER BY and LIMIT -----------------------------

    def _grouped(self, trees: list[tuple[str, Node]]) -> tuple[tuple[ShownColumn, ...], View]:
        """The join's columns and the view of a statement with groups, over the SELECT list."""
        clauses = self._clauses
        for tree in independent(self._groups(trees)):
            with at(tree):
                self._group_by(tree)
        if not self._sets:
            # With grouping sets, arguments can't read key columns: they are NULL in some groups.
            keys = reversed(self._keys)
            self._aggregation.keys = {k.expr: k.name for k in keys if k.name != _W}
        projection = _outputs((name, self._over_groups(tree)) for name, tree in trees)
        having: Expr | None = None
        if clauses.having is not None:
            with at(clauses.having):
                having = self._condition(self._resolved(clauses.having))
        copies = None
        if clauses.copies is not None:
            copies = coerce(self._over_groups(self._resolved(clauses.copies)), _BIGINT)
        order = tuple(self._sorts(clauses.order))
        arguments = self._aggregation.arguments
        joined = [*self._keys, *(ShownColumn(name, e) for e, name in arguments.items())]
        if not joined:
            # count(*) needs no column, but Parquet files without columns lose the number of rows.
            joined.append(ShownColumn("one", Literal(1, _INT)))
        view = View(
            grouped=True,
            keys=tuple((k.name, k.expr.type) for k in self._keys if k.name != _W),
            aggregates=tuple(self._aggregation.aggregates.values()),
            projection=projection,
            window=self._window,
            having=having,
            order=order,
            limit=self._limit(),
            offset=self._offset(),
            sets=self._sets,
            copies=copies,
        )
        if clauses.distinct and (clauses.group is not None or clauses.group_all):
            self._require_distinct(view)
        return tuple(joined), view

    def _require_distinct(self, view: View) -> None:
        """Check that SELECT has all keys of the groups, so that DISTINCT changes nothing."""
        lacking = {o.expr.name for o in view.hidden if isinstance(o.expr, Column)}
        edges = {WINDOW_START: "window.start", WINDOW_END: "window.end"}
        cumulating = view.window is not None and view.window.step
        if len(lacking) == 1 and lacking <= ({WINDOW_START} if cumulating else edges.keys()):
            # A window's end determines its start, and its start the end unless windows cumulate.
            return
        if lacking:
            texts = {k.name: str(k.expr) for k in self._keys}
            texts |= edges | {GROUPING_ID: "grouping_id()"}
            wanted = ", ".join(texts[name] for name in sorted(lacking))
            with at(self.query.items[0].node):
                raise unsupported(
                    "DISTINCT of groups whose keys are not all shown",
                    f"select {wanted} as well, or leave DISTINCT out",
                )

    def _ranked(self, trees: list[tuple[str, Node]]) -> tuple[tuple[ShownColumn, ...], View]:
        """The join's columns and the view of a statement with rows that are ordered or ranked."""
        clauses, ranking = self._clauses, self._clauses.ranking
        if clauses.limit is None and ranking is None:
            with at(clauses.offset):
                raise unsupported("OFFSET without LIMIT over joined rows", "add a LIMIT")
        carried: dict[Expr, str] = {}

        def column(expr: Expr) -> Column:
            name = carried.setdefault(expr, f"c{len(carried) + 1}")
            return Column("", name, expr.type)

        def over(tree: Node) -> Expr:
            """``tree`` as a column that the join computes. If it contains a rank or window
            function, an expression over columns that the join computes."""
            tree = _replaced(tree, lambda part: beside(part) if is_windowed(part) else part)
            with at(tree):
                found = typed(tree, self._below())
            computed = {PLACE, *(one.name for one in windowed)}
            above = {c for c in columns(found) if not c.alias and c.name in computed}
            if not above:
                return column(found)
            return substitute(found, lambda c: c if c in above else column(c))

        windowed = list[Windowed]()

        def sorted_by() -> DataType | None:
            """The type of the window function's sort key if it has only one, else None."""
            if ranking is None or len(ranking.order) != 1:
                return None
            tree = self._resolved(ranking.order[0].this, aliases=ranking.aliases)
            return typed(tree, self._below()).type

        def beside(call: Node) -> Node:
            name = f"{WINDOWED}{len(windowed) + 1}"
            with at(call):
                made = windowed_of(call, name, over, lambda node: typed(node, Scope()), sorted_by)
            windowed.append(made)
            return self._slot(Column("", made.name, made.type), call)

        def sort_keys(order: Iterable[exp.Ordered], *, aliases: bool) -> Iterator[SortKey]:
            for o in order:
                place = o.this if ranking is None else None
                if isinstance(place, exp.Literal) and not place.is_string:
                    with at(place):
                        tree = self._trees[_ordinal(place, len(self._trees))]
                else:
                    tree = self._resolved(o.this, aliases=aliases)
                yield _sort_key(over(tree), o)

        projection = _outputs((name, over(tree)) for name, tree in trees)
        if ranking is None:
            order = tuple(sort_keys(clauses.order, aliases=True))
            limit, partition = self._limit(), dict[str, DataType]()
        else:
            limit, aliases = ranking.limit, ranking.aliases
            keys = [over(self._resolved(n, aliases=aliases)) for n in ranking.partition]
            for key in keys:
                require_comparable("PARTITION BY of", key)
            partition = {key.name: key.type for key in keys if isinstance(key, Column)}
            order = tuple(sort_keys(ranking.order, aliases=aliases))
        view = View(
            grouped=False,
            keys=(),
            aggregates=(),
            projection=projection,
            order=order,
            limit=limit,
            offset=self._offset(),
            partition=tuple(partition.items()),
            ranking=RankFunction.ROW_NUMBER if ranking is None else ranking.function,
            windowed=tuple(windowed),
        )
        return tuple(ShownColumn(name, e) for e, name in carried.items()), view

    # --- clauses -----------------------------------------------------------------------------

    def _items(self) -> Iterator[tuple[str, Node]]:
        """The SELECT list with ``*`` expanded, as pairs of name and unresolved expression."""
        taken = set[str]()
        names = OutputNames(taken)

        def distinct(name: str, qualifier: str) -> str:
            found = names.distinct(name, qualifier)
            taken.add(found.lower())
            return found

        for item in lateral(self.query.items, self.scope):
            with at(item.node):
                if item.node is None:
                    for shown in starred(item, self.scope):
                        if shown.name.startswith(HIDDEN):
                            continue
                        own = distinct(shown.name, owner_of(shown.expr))
                        yield own, self._slot(shown.expr, None)
                    continue
                name = item.name or distinct(
                    name_of(item.node) or "",
                    item.node.table if isinstance(item.node, exp.Column) else "",
                )
                if not name:
                    raise QueryError(
                        "unnamed-output",
                        f"{describe(item.node)} has no name",
                        remedy="give it a name with AS",
                    )
                yield name, item.node

    def _groups(self, trees: list[tuple[str, Node]]) -> Sequence[Node]:
        """The grouping keys with names resolved; for DISTINCT the items of the SELECT list."""
        clauses, items = self._clauses, [tree for _, tree in trees]
        if clauses.group_all:
            return [keyed(tree) for tree in items if not holds_aggregate(tree)]
        if clauses.group is None:
            alone = clauses.distinct and clauses.having is None
            return items if alone and not any(map(holds_aggregate, items)) else ()

        def resolved(node: Node) -> Node:
            if isinstance(node, exp.Literal) and not node.is_string:
                with at(node):
                    return keyed(items[_ordinal(node, len(items))])
            return keyed(self._resolved(node, aliases_last=True))

        found = grouping_of(clauses.group, clauses.group_first, resolved)
        self._sets = self._sets_of(found)
        return found.keys

    def _sets_of(self, grouping: Grouping) -> tuple[tuple[int, ...], ...]:
        """Grouping sets, as positions in the list of keys; empty if all sets have all keys."""
        everywhere = {key for key in grouping.keys if is_window(key)}
        for key in everywhere:
            if not all(key in one for one in grouping.sets):
                with at(key):
                    raise unsupported(
                        "a window inside ROLLUP, CUBE or GROUPING SETS", "group by it beside them"
                    )
        plain = [key for key in grouping.keys if key not in everywhere]
        # Different spellings of the same expression count as one key.
        exprs = {key: typed(key, self._below()) for key in plain}
        found = list(dict.fromkeys(exprs.values()))
        with at(grouping.keys[0] if grouping.keys else None):
            return grouping.positions({key: found.index(expr) for key, expr in exprs.items()})

    def _sorts(self, order: Iterable[exp.Ordered]) -> Iterator[SortKey]:
        for entry in order:
            node = entry.this
            with at(node):
                if isinstance(node, exp.Literal) and not node.is_string:
                    tree = self._trees[_ordinal(node, len(self._trees))]
                else:
                    tree = self._resolved(node)
                found = self._over_groups(tree)
            yield _sort_key(found, entry)

    def _limit(self) -> int | None:
        clauses = self._clauses
        if clauses.limit is None:
            if clauses.offset is not None:
                with at(clauses.offset):
                    raise unsupported("OFFSET without LIMIT", "give a LIMIT")
            return None
        with at(clauses.limit):
            return _row_count(clauses.limit, "LIMIT")

    def _offset(self) -> int:
        offset = self._clauses.offset
        return 0 if offset is None else _row_count(offset, "OFFSET")

    # --- names -------------------------------------------------------------------------------

    def _resolved(self, node: Node, *, aliases: bool = True, aliases_last: bool = False) -> Node:
        """``node`` with columns replaced by slots (placeholders of expressions over streams), and
        aliases of the SELECT list by their expressions."""

        def found(part: Node) -> Node:
            if isinstance(part, exp.Subquery):
                # Names inside a subquery are resolved in the subquery's own scope.
                return exp.Placeholder(this=self._scalar(part))
            if not isinstance(part, exp.Column):
                return part
            qualifier = part.table.lower()
            if qualifier in WINDOWS and self.scope.find_table(qualifier) is None:
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
                    if not part.table and name in WINDOWS and self._clauses.group is not None:
                        return window_value(name)
                    raise

        return bare(_replaced(node, found))

    def _scalar(self, node: exp.Subquery) -> str:
        with at(node):
            refuse_others(node, {"this"})
            query = self.inner(node)
            if len(query.shown) != 1 or query.view is None or query.view.identity:
                raise unsupported(
                    "a scalar subquery that is not one aggregate",
                    "select one aggregate of all rows",
                )
            name = f"{SCALAR}{len(self.scalars) + 1}"
            self.scalars.append((name, query))
            return name

    def _slot(self, expr: Expr, node: Node | None) -> Node:
        """The placeholder column for the expression ``expr`` over streams in resolved SQL."""
        number = self._slots.setdefault(expr, len(self._slots))
        made = exp.Column(this=exp.Identifier(this=f"{_SLOT}{number}", quoted=True))
        if node is not None:
            kept = node if "line" in node.meta else node.this
            made.this.meta.update(kept.meta)
            made.meta[NAMED] = node.name
        return called(made, str(expr) if node is None else describe(node))

    def _below(self) -> Scope:
        """Scope of the slots (placeholder columns), for typechecking of resolved expressions."""
        return Scope(visible=tuple(ShownColumn(f"{_SLOT}{n}", e) for e, n in self._slots.items()))

    # --- keys and aggregates -----------------------------------------------------------------

    def _group_by(self, tree: Node) -> None:
        if holds_aggregate(tree):
            raise QueryError(
                "misplaced-aggregate",
                "GROUP BY contains an aggregate",
                remedy="group by columns of the joined rows",
            )
        if is_window(tree):
            self._group_by_window(tree)
            return
        if tree in self._terms:
            return
        found = typed(tree, self._below())
        if found.type.kind is TypeKind.NULL:
            raise QueryError(
                "unsupported-output",
                f"{found.type} can't be grouped by",
                remedy="cast the value to the type that you want",
            )
        if self._clauses.copies is None:
            require_comparable("GROUP BY or DISTINCT of", found)
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
        self._window, time = window_of(tree, _W, self._below())
        self._window_tree = tree
        self._keys.append(ShownColumn(_W, time))

    def _over_groups(self, tree: Node) -> Expr:
        """The resolved expression ``tree``, rewritten to read the group's keys and aggregates."""
        with at(tree):
            names: dict[str, Expr] = {}

            def found(part: Node) -> Node:
                if is_window(part):
                    self._require_window(part)
                    return _replaced(window_value(str(part.this).lower()), found)
                value = self._term(part)
                if value is None:
                    if isinstance(part, exp.Column):
                        self._refuse_ungrouped(part)
                    return part
                # Errors quote the SQL as written, not the generated column.
                text = as_written(part)
                if names.setdefault(text, value) != value:
                    text = f"{text} {value}"
                    names[text] = value
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
                remedy="write a comparison, such as x > 0",
            )
        return found

    def _term(self, part: Node) -> Expr | None:
        """The post-join column of ``part`` if it is a key, an aggregate, a scalar subquery,
        grouping() or a window's start or end; else None."""
        if part in self._terms:
            return self._terms[part]
        if isinstance(part, exp.Placeholder) and str(part.this).startswith(SCALAR):
            query = dict(self.scalars)[str(part.this)]
            return Column("", str(part.this), query.shown[0].expr.type)
        if isinstance(part, exp.Anonymous) and str(part.this).lower() in _GROUPING:
            with at(part):
                return self._grouping(part)
        with at(part):
            call = call_of(part)
        if call is not None:
            return self._aggregation.column(call, self._below())
        edge = self._window_edge(part)
        return None if edge is None else Column("", edge, TIMESTAMP)

    def _grouping(self, call: exp.Anonymous) -> Expr:
        """Typed ``grouping(x)`` or ``grouping_id(x, ...)``; default arguments are all keys."""
        name = str(call.this).lower()
        one, keys = name == "grouping", [k.name for k in self._keys]
        if self._clauses.group is None:
            raise QueryError(
                "not-grouped", f"{name}() without GROUP BY", remedy="group by ROLLUP or the like"
            )
        if one and len(call.expressions) != 1:
            raise QueryError(
                "bad-arguments",
                f"grouping() takes one key, not {len(call.expressions)}",
                remedy="write grouping(x), or grouping_id(x, y)",
            )
        named = []
        for node in call.expressions:
            term = self._terms.get(bare(node))
            if term is None and node != self._window_tree:
                with at(node):
                    raise QueryError(
                        "not-grouped",
                        f"{describe(node)} in {name}() is not a key of GROUP BY",
                        remedy="name keys as GROUP BY has them",
                    )
            named.append(_W if term is None else term.name)
        plain = [key for key in keys if key != _W]
        places = [None if n == _W else plain.index(n) for n in named or keys]
        sets = self._sets or (tuple(range(len(plain))),)
        return chosen_by_set(bits(sets, places, len(plain)), bit=one)

    def _require_window(self, call: Node) -> None:
        """Reject a time window that is not the one in GROUP BY."""
        if call == self._window_tree:
            return
        with at(call):
            if self._window_tree is None:
                raise no_window(str(call.this).lower())
            raise unsupported(
                "a window other than the one in GROUP BY",
                "write the same window in both, or the name that AS gives it in the SELECT list",
            )

    def _window_edge(self, part: Node) -> str | None:
        edge = name = None
        if isinstance(part, exp.Column) and part.table.lower() in WINDOWS:
            edge, name = part.name.lower(), part.table.lower()
        elif isinstance(part, exp.Dot) and is_window(part.this):
            self._require_window(part.this)
            edge = part.expression.name.lower()
        if edge is None:
            return None
        with at(part):
            tree = self._window_tree
            if tree is None or name not in (None, str(tree.this).lower()):
                raise no_window(name or WINDOW)
            if edge not in ("start", "end"):
                raise QueryError(
                    "unknown-column",
                    f"a window has no {edge!r}",
                    remedy=f"it has {name or WINDOW}.start and {name or WINDOW}.end",
                )
        return WINDOW_START if edge == "start" else WINDOW_END

    def _refuse_ungrouped(self, part: exp.Column) -> None:
        expr = next((e for e, n in self._slots.items() if part.name == f"{_SLOT}{n}"), None)
        shown = part.name if expr is None else expr
        with at(part):
            raise QueryError(
                "not-grouped",
                f"{shown} is neither grouped by nor aggregated",
                remedy=f"add it to GROUP BY, or aggregate it: max({shown})",
            )


def _replaced(tree: Node, found: object) -> Node:
    """SQL ``tree`` with nodes replaced, top-down, by results of ``found`` (not visited in turn)."""
    return tree.copy().transform(found, copy=False)  # type: ignore[arg-type]


def name_of(node: Node) -> str | None:
    """Spark's name of a SELECT item, which may contain aggregates."""
    inside = bare(node)
    if isinstance(inside, exp.Column) and inside.table.lower() in WINDOWS:
        return inside.name
    if is_window(inside):
        return str(inside.this).lower()
    if isinstance(inside, exp.Anonymous) and holds_aggregate(inside):
        name, arguments = str(inside.this).lower(), inside.expressions
        if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            return f"{name}(1)"
        if len(arguments) != (2 if name in _OF_TWO else 1) or name in _UNCERTAIN:
            return None
        texts = [spark_name(argument) for argument in arguments]
        return None if None in texts else f"{name}({', '.join(map(str, texts))})"
    return spark_name(node)


def _ordinal(node: Node, count: int) -> int:
    text = str(node.this)
    if not text.isdecimal() or not 1 <= int(text) <= count:
        raise QueryError(
            "bad-ordinal",
            f"{text} is not a position in the SELECT list",
            remedy=f"write a number from 1 to {count}, or the expression itself",
        )
    return int(text) - 1


def _row_count(node: Node, what: str) -> int:
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    if not text.isdecimal() or int(text) > 10**9:
        raise QueryError(
            "bad-literal",
            f"{what} {describe(node)} is not a number of rows",
            remedy="write a whole number up to 1000000000",
        )
    return int(text)


def _sort_key(expr: Expr, entry: exp.Ordered) -> SortKey:
    with at(entry):
        require_comparable("ORDER BY of", expr)
    return SortKey(expr, bool(entry.args.get("desc")), _nulls_first(entry))


def _nulls_first(entry: exp.Ordered) -> bool:
    given = entry.args.get("nulls_first")
    return bool(given) if given is not None else not entry.args.get("desc")


def _outputs(found: Iterable[tuple[str, Expr]]) -> tuple[Output, ...]:
    """The SELECT list as output columns of a view; names must be distinct, and types writable."""
    outputs: dict[str, Output] = {}
    for name, expr in found:
        require_writable(name, expr)
        require_new(name, outputs, expr)
        outputs[name.lower()] = Output(name, expr)
    return tuple(outputs.values())

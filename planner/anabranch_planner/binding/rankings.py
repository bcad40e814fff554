"""Rankings of joined rows: QUALIFY, DISTINCT ON, ``WHERE rn <= n`` over a subquery; or all rows.

All spellings become one :class:`RowRanking`. The ranking function is replaced by
:func:`place`, the row's place in its partition. If it stands in a subquery, its sort keys become
hidden columns of the whole statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import common_type
from anabranch_contract.queries.expressions import Column, Expr
from anabranch_contract.queries.views import PLACE, Neighbour, RankFunction
from anabranch_planner.binding.literals import coerce
from anabranch_planner.binding.naming import bare
from anabranch_planner.sql.aggregates import (
    NEIGHBOURS,
    function_over,
    holds_aggregate,
    windows_of,
)
from anabranch_planner.sql.arguments import refuse_others
from anabranch_planner.sql.unresolved import (
    HIDDEN,
    Condition,
    FromEntry,
    Node,
    PostJoin,
    RowRanking,
    SelectItem,
    Unresolved,
    at,
    called,
    describe,
    operands,
    unsupported,
)

_FUNCTIONS = {f.value: f for f in RankFunction}
#: Key of the metadata of a function of neighbours, without its OVER.
_MARK = "neighbour"
_OTHERS = (
    "write lag(), lead() or a ranking; join with a query of GROUP BY for values of groups; or use "
    "it where the results are read"
)
_EXAMPLE = "QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC) <= 3"
_MIRRORED: dict[type[Node], type[Node]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}


def with_ranking(query: Unresolved) -> Unresolved:
    """``query`` with its ranking, if it has one, in :attr:`PostJoin.ranking`.

    Raises:
        QueryError: ``unsupported-sql``: the condition is not a limit on the places of a single
            ranking, or there are other post-join clauses.
    """
    clauses = query.post_join
    if clauses is not None and clauses.ranking is None:
        if clauses.distinct_on:
            return _with_distinct_on(query, clauses)
        if clauses.qualify is not None:
            return _with_qualify(query, clauses, clauses.qualify)
    if clauses is not None and clauses.ranking is not None:
        return query
    known = {*_FUNCTIONS, *NEIGHBOURS}
    windows = windows_of(query.items)
    for window in windows:
        if (name := function_over(window)) not in known:
            with at(window):
                raise unsupported(f"{name}() OVER (...)", _OTHERS)
    return _with_windows(query, windows) if windows else _with_subquery(query)


def place(node: Node) -> Node:
    """Placeholder for a row's place in its partition; replaces the ranking function ``node``."""
    return called(exp.Placeholder(this=PLACE), describe(node))


def _is_ranking(node: Node | None) -> bool:
    return function_over(node) in _FUNCTIONS


# --- all rows ------------------------------------------------------------------------------------


def _with_windows(query: Unresolved, windows: Sequence[Node]) -> Unresolved:
    """``query`` with rankings and neighbours of all rows of each partition."""
    function, wanted = RankFunction.ROW_NUMBER, None
    ranked = {function_over(window) for window in windows} - NEIGHBOURS
    first = windows[0]
    for window in windows:
        with at(window):
            name = function_over(window)
            one = _ranking(window, None, query.windows)
            if wanted is not None and (one.partition, one.order) != wanted:
                raise unsupported(
                    f"{name}() over another partition or order than {function_over(first)}()",
                    "register one query for each",
                )
            wanted = one.partition, one.order
            if name in _FUNCTIONS:
                function = one.function
                if len(ranked) > 1:
                    raise unsupported(
                        f"{' and '.join(sorted(ranked))} in one statement", "write one of them"
                    )
    with at(first):
        clauses = query.post_join or PostJoin()
        _refuse_beside(clauses, query.items, f"{function_over(first)}() OVER (...)")
    assert wanted is not None

    def found(part: Node) -> Node:
        if _is_ranking(part):
            return place(part)
        if function_over(part) in NEIGHBOURS:
            return as_neighbour(part)
        return part

    items = tuple(
        item if item.node is None else replace(item, node=item.node.copy().transform(found))
        for item in query.items
    )
    ranking = RowRanking(function, *wanted, None)
    return replace(query, items=items, windows=(), post_join=replace(clauses, ranking=ranking))


# --- neighbours ----------------------------------------------------------------------------------


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
    """The value of a literal without fraction or sign; None for other expressions."""
    inside = bare(node)
    text = str(inside.this) if isinstance(inside, exp.Literal) and not inside.is_string else ""
    return int(text) if text.isdecimal() and len(text) < 10 else None


# --- DISTINCT ON ---------------------------------------------------------------------------------


def _with_distinct_on(query: Unresolved, clauses: PostJoin) -> Unresolved:
    on, order = clauses.distinct_on, clauses.order
    with at(on[0]):
        _refuse_beside(clauses, query.items, "DISTINCT ON", order=False)
        keys = [bare(node) for node in on]
        first = [bare(entry.this) for entry in order[: len(keys)]]
        if set(first) != set(keys):
            raise unsupported(
                "DISTINCT ON of other expressions than ORDER BY begins with",
                f"write ORDER BY {', '.join(map(describe, keys))}, and what decides after it",
            )
        rest = order[len(first) :]
        if not rest:
            raise unsupported(
                "DISTINCT ON without an order of the rows of a key",
                f"write ORDER BY {', '.join(map(describe, keys))}, and what decides after it",
            )
    ranking = RowRanking(RankFunction.ROW_NUMBER, tuple(keys), rest, 1, aliases=True)
    made = replace(clauses, distinct=False, distinct_on=(), order=(), ranking=ranking)
    return replace(query, post_join=made)


# --- QUALIFY -------------------------------------------------------------------------------------


def _with_qualify(query: Unresolved, clauses: PostJoin, condition: Node) -> Unresolved:
    with at(condition):
        _refuse_beside(clauses, query.items, "QUALIFY")
        for window in windows_of(query.items):
            if (name := function_over(window)) in NEIGHBOURS:
                with at(window):
                    raise unsupported(
                        f"{name}() beside QUALIFY", "write QUALIFY above a subquery with it"
                    )
        named = {
            item.name.lower(): window
            for item in query.items
            if item.name is not None and item.node is not None
            and _is_ranking(window := bare(item.node))
        }  # fmt: skip

        def ranked(node: Node) -> Node | None:
            if isinstance(node, exp.Column) and not node.table:
                return named.get(node.name.lower())
            return node if _is_ranking(node) else None

        found = _limit(condition, ranked)
        if found is None:
            raise unsupported(
                "QUALIFY with another condition than a limit of one ranking", f"write {_EXAMPLE}"
            )
        window, limit = found
        ranking = _ranking(window, limit, query.windows)
    items = tuple(_placed(item, window, query.windows) for item in query.items)
    made = replace(clauses, qualify=None, ranking=ranking)
    return replace(query, items=items, post_join=made, windows=())


def _placed(item: SelectItem, window: Node, windows: Sequence[Node]) -> SelectItem:
    """The item with :func:`place` instead of the ranking ``window``."""
    wanted = _spelled(window, windows)

    def found(part: Node) -> Node:
        return place(part) if _is_ranking(part) and _spelled(part, windows) == wanted else part

    return item if item.node is None else replace(item, node=item.node.copy().transform(found))


def _spelled(window: Node, windows: Iterable[Node]) -> Node:
    """``window`` with a window name replaced by its definition in the WINDOW clause."""
    name = window.args.get("alias")
    if name is None:
        return window
    refuse_others(window, {"this", "alias", "over"})
    for clause in windows:
        if clause.name.lower() == name.name.lower():
            made = clause.copy()
            made.set("this", window.this.copy())
            made.set("over", window.args.get("over"))
            return made
    with at(window):
        raise QueryError(
            "unknown-alias",
            f"there is no window {name.name!r}",
            remedy=f"write WINDOW {name.name} AS (PARTITION BY k ORDER BY x)",
        )


def _ranking(window: Node, limit: int | None, windows: Iterable[Node]) -> RowRanking:
    spelled = _spelled(window, windows)
    with at(window):
        refuse_others(spelled, {"this", "partition_by", "order", "over"})
        order = spelled.args.get("order")
        name = str(spelled.this.this).lower()
        if order is None:
            raise unsupported(
                f"{name}() without ORDER BY", f"write {name}() OVER (PARTITION BY k ORDER BY x)"
            )
        if spelled.this.expressions and name in _FUNCTIONS:
            raise QueryError(
                "bad-arguments", f"{name}() takes no arguments", remedy=f"write {name}()"
            )
        partition = tuple(map(bare, spelled.args.get("partition_by") or ()))
        function = _FUNCTIONS.get(name, RankFunction.ROW_NUMBER)
        return RowRanking(function, partition, tuple(order.expressions), limit)


def _limit(condition: Node, ranked: Callable[[Node], Node | None]) -> tuple[Node, int] | None:
    """The ranking in ``condition``, and the greatest permitted place, None if unlimited."""
    node = bare(condition)
    if isinstance(node, exp.Between):
        window, low, high = ranked(bare(node.this)), whole_number(node.args["low"]), None
        high = whole_number(node.args["high"])
        return None if window is None or low != 1 or high is None else (window, high)
    if type(node) not in _MIRRORED:
        return None
    kind: type[Node] = type(node)
    window, limit = ranked(bare(node.this)), whole_number(node.expression)
    if window is None:
        window, limit = ranked(bare(node.expression)), whole_number(node.this)
        kind = _MIRRORED[kind]
    if window is None or limit is None:
        return None
    if kind is exp.LTE or (kind is exp.EQ and limit == 1):
        return window, limit
    return (window, max(limit - 1, 0)) if kind is exp.LT else None


def _refuse_beside(
    clauses: PostJoin, items: Iterable[SelectItem], what: str, *, order: bool = True
) -> None:
    """Reject post-join clauses beside a ranking."""
    grouped = clauses.group is not None or clauses.having is not None
    if grouped or any(i.node is not None and holds_aggregate(i.node) for i in items):
        raise unsupported(
            f"{what} over groups",
            "rank groups where the results are read, or write ORDER BY ... LIMIT",
        )
    beside = {
        "DISTINCT": clauses.distinct,
        "QUALIFY": clauses.qualify is not None and what != "QUALIFY",
        "LIMIT": clauses.limit is not None or clauses.offset is not None,
        "ORDER BY": order and bool(clauses.order),
    }
    for name, used in beside.items():
        if used:
            raise unsupported(
                f"{name} beside {what}",
                "leave it out: rows are kept by their places, and sorted where they are read",
            )


# --- a subquery with the function, and WHERE above it --------------------------------------------


def _with_subquery(query: Unresolved) -> Unresolved:
    if len(query.sources) != 1 or query.outer or isinstance(query.sources[0].of, str):
        return query
    source = _bare_source(query.sources[0])
    inner = source.of
    if isinstance(inner, str):
        return query
    number = next((n for n, item in enumerate(inner.items) if _is_ranking(_bare(item))), None)
    if number is None:
        return query
    window = _bare(inner.items[number])
    assert window is not None
    name = source.columns[number] if source.columns else inner.items[number].name
    what = f"a subquery with {window.this.this}()"
    with at(window):
        if query.post_join is not None:
            _refuse_beside(query.post_join, query.items, what)
            raise unsupported(f"QUALIFY over {what}", "write one of them")

    def ranked(node: Node) -> Node | None:
        if isinstance(node, exp.Column) and name is not None and node.name.lower() == name.lower():
            return window
        return None

    limits, others = list[tuple[Node, int]](), list[Condition]()
    for condition in query.conditions:
        for part in operands(condition.node, exp.And):
            found = _limit(part, ranked)
            if found is not None:
                limits.append(found)
            else:
                others.append(replace(condition, node=part))
    if len(limits) != 1:
        with at(window):
            raise unsupported(
                f"{what} without one limit of its places",
                f"write WHERE {name or 'rn'} <= 3, or {_EXAMPLE}",
            )
    ranking = _ranking(window, limits[0][1], inner.windows)
    shared = _partition_names(inner, source, ranking)
    for condition in others:
        with at(condition.node):
            read = {column.name.lower() for column in condition.node.find_all(exp.Column)}
            if not read <= shared:
                raise unsupported(
                    f"a condition on rows that are already ranked ({describe(condition.node)})",
                    "write it into the subquery, where it leaves rows out before they are ranked",
                )
    return _lifted(query, source, inner, number, ranking, tuple(others))


def _bare_source(source: FromEntry) -> FromEntry:
    """The source without enclosing queries that only rename its columns, as WITH adds them."""
    of = source.of
    while isinstance(of, Unresolved) and of.items == (SelectItem(None),) and not of.conditions:
        if len(of.sources) != 1:
            break
        inner = of.sources[0]
        source = replace(inner, alias=source.alias, columns=source.columns or inner.columns)
        of = source.of
    return source


def _bare(item: SelectItem) -> Node | None:
    return None if item.node is None else bare(item.node)


def _partition_names(inner: Unresolved, source: FromEntry, ranking: RowRanking) -> set[str]:
    """Names of the subquery's columns that are equal in all rows of a partition."""
    found = set[str]()
    if any(item.node is None for item in inner.items) and len(inner.sources) == 1:
        changed = {(one.name or "").lower() for item in inner.items for one in item.replaced}
        named = {n.name.lower() for n in ranking.partition if isinstance(n, exp.Column)}
        found = named - changed
    if source.columns:
        found = set()
    for number, item in enumerate(inner.items):
        if item.node is None:
            continue
        own = bare(item.node)
        name = item.name or (own.name if isinstance(own, exp.Column) else "")
        if source.columns:
            name = source.columns[number]
        if own in ranking.partition:
            found.add(name.lower())
        else:
            found.discard(name.lower())
    return found


def _lifted(
    query: Unresolved,
    source: FromEntry,
    inner: Unresolved,
    number: int,
    ranking: RowRanking,
    conditions: tuple[Condition, ...],
) -> Unresolved:
    """``query`` merged with its subquery ``inner``, whose ranking becomes a clause of the whole."""
    items = list(inner.items)
    window = items[number].node
    assert window is not None
    named = items[number].name or (source.columns[number] if source.columns else None)
    items[number] = replace(items[number], node=place(window), name=named)
    hidden: list[str] = []

    def passed(node: Node) -> Node:
        hidden.append(f"{HIDDEN}{len(hidden) + 1}")
        items.append(SelectItem(node, hidden[-1]))
        made = exp.Column(this=exp.Identifier(this=hidden[-1], quoted=True))
        return called(made, describe(node))

    partition = tuple(map(passed, ranking.partition))
    order = []
    for entry in ranking.order:
        made = entry.copy()
        made.set("this", passed(entry.this))
        order.append(made)
    columns = (*source.columns, *hidden) if source.columns else ()
    inside = replace(inner, items=tuple(items), windows=())
    post_join = PostJoin(ranking=replace(ranking, partition=partition, order=tuple(order)))
    sources = (replace(source, of=inside, columns=columns),)
    return replace(query, sources=sources, conditions=conditions, post_join=post_join)

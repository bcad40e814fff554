"""Rankings of joined rows (QUALIFY, DISTINCT ON, ``WHERE rn <= n`` over a subquery), and window
functions that keep all rows.

All spellings become one :class:`RowRanking`. The ranking function is replaced by :func:`place`, the
row's place in its partition. If the function stands in a subquery, its sort keys become hidden
columns of the subquery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from anabranch_contract.durations import unit_micros
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import DOUBLE, INT, common_type
from anabranch_contract.queries.expressions import Column, Expr, Literal
from anabranch_contract.queries.types import INTEGRAL, NUMERIC, TIMESTAMPS, DataType, TypeKind
from anabranch_contract.queries.views import (
    FRAMED,
    PLACE,
    AggregateFunction,
    Excluded,
    Frame,
    FrameUnit,
    RankFunction,
    Windowed,
    WindowFunction,
)
from anabranch_planner.binding.functions.collections import require_comparable
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql.aggregates import (
    BIGINT,
    PLACES,
    READ,
    TOTALS,
    WINDOWED,
    call_over,
    function_over,
    holds_aggregate,
    no_number,
    result_type,
    windows_of,
)
from anabranch_planner.sql.arguments import refuse_others
from anabranch_planner.sql.clauses.qualified import limit_of, whole_number
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
    bare,
    called,
    describe,
    operands,
    unsupported,
)

_FUNCTIONS = {f.value: f for f in RankFunction}
_OTHERS = (
    "write sum(), count(), avg(), min(), max(), a ranking, or a value of another row; join with a "
    "query of GROUP BY for other values of groups"
)
#: Microseconds of a day; maximum digits of a decimal in a RANGE frame; maximum distance in a frame.
_DAY, _DIGITS, _GREATEST = unit_micros("day") or 1, 18, 2**62
_EXAMPLE = "QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC) <= 3"


def with_ranking(query: Unresolved) -> Unresolved:
    """``query`` with its ranking, or its window functions, in :attr:`PostJoin.ranking`; unchanged
    if it has none.

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
    known = PLACES | WINDOWED.keys()
    windows = windows_of(query.items)
    for window in windows:
        if (name := function_over(window)) not in known:
            with at(window):
                raise unsupported(f"{name}() OVER (...)", _OTHERS)
    return _with_windows(query, windows) if windows else _with_subquery(query)


def place(node: Node) -> Node:
    """Placeholder for a row's place in its partition, for the ranking function ``node``."""
    return called(exp.Placeholder(this=PLACE), describe(node))


def _is_ranking(node: Node | None) -> bool:
    return function_over(node) in _FUNCTIONS


# --- window functions that keep all rows ---------------------------------------------------------


def _with_windows(query: Unresolved, windows: Sequence[Node]) -> Unresolved:
    """``query`` with window functions, computed for all rows of each partition."""
    function, wanted = RankFunction.ROW_NUMBER, None
    ranked = {function_over(window) for window in windows} & PLACES
    first = windows[0]
    for window in windows:
        with at(window):
            name = function_over(window)
            one = _ranking(window, None)
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
        if function_over(part) in WINDOWED:
            return _as_windowed(part)
        return part

    items = tuple(
        item if item.node is None else replace(item, node=item.node.copy().transform(found))
        for item in query.items
    )
    ranking = RowRanking(function, *wanted, None)
    return replace(query, items=items, post_join=replace(clauses, ranking=ranking))


# --- functions of the rows around a row ----------------------------------------------------------


def _as_windowed(window: Node) -> Node:
    """Return ``window`` without PARTITION BY and ORDER BY (kept in :attr:`PostJoin.ranking`)."""
    made = window.copy()
    made.set("partition_by", None)
    made.set("order", None)
    made.meta[READ] = True
    return called(made, describe(window))


def is_windowed(node: Node) -> bool:
    """Whether ``node`` is a window function, not a ranking, that :func:`with_ranking` has kept."""
    return READ in node.meta


def windowed_of(
    window: Node,
    name: str,
    over: Callable[[Node], Expr],
    constant: Callable[[Node], Expr],
    key: Callable[[], DataType | None],
) -> Windowed:
    """Type the window function ``window`` as column ``name`` of its rows.

    Args:
        over: converts an argument to an expression over columns of the joined rows.
        constant: types the distance in a limit of a frame, which must be constant.
        key: returns the type of the only sort key; None if there are several.

    Raises:
        QueryError: ``bad-arguments``, ``type-mismatch``, ``bad-frame``; ``unsupported-sql``: nested
            window functions, DISTINCT, FILTER.
    """
    call, given = call_over(window), function_over(window)
    function, arguments = WINDOWED[given], list(call.expressions)
    ignoring = window.find(exp.IgnoreNulls) is not None
    if window.find(exp.Filter) is not None:
        remedy = f"write {given}(CASE WHEN condition THEN x END) OVER (...)"
        raise unsupported(f"FILTER of {given}() OVER (...)", remedy)
    if any(isinstance(argument, exp.Distinct) for argument in arguments):
        remedy = "join with a query of GROUP BY that counts the values of each partition"
        raise unsupported(f"{given}() OVER (...) of DISTINCT values", remedy)
    if ignoring and function not in _OF_ROWS:
        raise unsupported(f"IGNORE NULLS of {given}()", "leave it out: it passes over NULLs anyway")
    least, most = _ARGUMENTS.get(function, (1, 1))
    if not least <= len(arguments) <= most:
        raise QueryError(
            "bad-arguments",
            f"{given}() takes {_COUNTED[least, most]}, not {len(arguments)}",
            remedy=f"write {_WRITTEN.get(function, '{}(x)').format(given)}",
        )
    if function is WindowFunction.NTILE:
        number = _argument(given, arguments[0], 1)
        return Windowed(name, function, None, INT, number)
    if function in (WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST):
        return Windowed(name, function, None, DOUBLE)
    frame = _frame(window.args.get("spec"), constant, key)
    if function is WindowFunction.COUNT and isinstance(arguments[0], exp.Star):
        return Windowed(name, function, None, BIGINT, frame=frame)
    value = over(arguments[0])
    if not isinstance(value, Column) or value.name == PLACE:
        raise unsupported(
            f"{given}() of a function over the same rows",
            "write the inner function in a subquery in FROM",
        )
    kind, number, default = value.type, 1, None
    if function in FRAMED and function not in _OF_ROWS:
        if function in (WindowFunction.MIN, WindowFunction.MAX):
            require_comparable(f"{given}() of", value)
        elif function is not WindowFunction.COUNT and kind.kind not in NUMERIC:
            raise no_number(given, kind)
        kind = result_type(AggregateFunction(function.value), kind)
    if len(arguments) > 1:
        number = _argument(given, arguments[1], int(function is WindowFunction.NTH_VALUE))
    if len(arguments) > 2:
        default = _default(given, over(_fitting(arguments[2], kind, constant)), kind)
    return Windowed(name, function, value.name, kind, number, default, frame, ignoring)


#: Window functions that return the value of another row.
_OF_ROWS = frozenset({
    WindowFunction.LAG, WindowFunction.LEAD, WindowFunction.FIRST_VALUE,
    WindowFunction.LAST_VALUE, WindowFunction.NTH_VALUE,
})  # fmt: skip
#: Window function -> minimum and maximum number of arguments, unless both are one.
_ARGUMENTS = {
    **dict.fromkeys((WindowFunction.LAG, WindowFunction.LEAD), (1, 3)),
    **dict.fromkeys((WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST), (0, 0)),
    WindowFunction.NTH_VALUE: (2, 2),
}
_COUNTED = {
    (0, 0): "no arguments",
    (1, 1): "one argument",
    (1, 3): "one to three arguments",
    (2, 2): "two arguments",
}
_WRITTEN = {
    **dict.fromkeys((WindowFunction.LAG, WindowFunction.LEAD), "{0}(x), {0}(x, 2) or {0}(x, 2, 0)"),
    **dict.fromkeys((WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST), "{}()"),
    WindowFunction.NTH_VALUE: "{}(x, 2)",
    WindowFunction.NTILE: "{}(4)",
}


def _argument(function: str, node: Node, least: int) -> int:
    """The constant argument of the window function ``function``, at least ``least``."""
    found = whole_number(node)
    if found is None or found < least:
        place = "argument" if function == "ntile" else "second argument"
        raise QueryError(
            "bad-arguments",
            f"the {place} of {function}() is {describe(node)}",
            remedy=f"write a number of rows from {least} on"
            if function != "ntile"
            else "write the number of parts",
        )
    return found


def _fitting(node: Node, kind: DataType, constant: Callable[[Node], Expr]) -> Node:
    """A window function's argument, cast to ``kind`` if it is a number that fits the type."""
    number = node.this if isinstance(node, exp.Neg) else node
    if isinstance(number, exp.Literal) and not number.is_string and kind.kind in NUMERIC:
        found = constant(node)
        if found.type != kind and isinstance(coerce(found, kind), Literal):
            return exp.cast(node.copy(), str(kind), dialect="spark")
    return node


def _default(function: str, found: Expr, kind: DataType) -> Expr:
    if common_type(kind, found.type) != kind:
        raise QueryError(
            "type-mismatch",
            f"the default of {function}() is of type {found.type}, and its argument of type {kind}",
            remedy="cast the default or the argument",
        )
    return coerce(found, kind)


def _frame(
    spec: Node | None, constant: Callable[[Node], Expr], key: Callable[[], DataType | None]
) -> Frame:
    """The frame of a window; the default is from the partition's start to the row's peers."""
    if spec is None:
        return Frame()
    excluded = Excluded(str(spec.args.get("exclude") or Excluded.NOTHING).lower())
    unit = FrameUnit(str(spec.args["kind"]).lower())
    limits = [
        _frame_limit(spec.args.get(name), spec.args.get(f"{name}_side"), unit, constant, key)
        for name in ("start", "end")
    ]
    (start, first), (end, last) = limits
    if first > last or (first == last == 0 and (start or 0) > (end or 0)) or first > 0 or last < 0:
        raise QueryError(
            "bad-frame",
            f"the frame {describe(spec)} ends before it begins",
            remedy="write ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
        )
    # Without distances, GROUPS means the same as RANGE; so does a whole partition in any unit.
    distant = bool(start or end)
    if (start, end) == (None, None) or (unit is FrameUnit.GROUPS and not distant):
        unit = FrameUnit.RANGE
    return Frame(unit, start, end, excluded)


def _frame_limit(
    value: Node | str | None,
    side: str | None,
    unit: FrameUnit,
    constant: Callable[[Node], Expr],
    key: Callable[[], DataType | None],
) -> tuple[int | None, int]:
    """Distance of a window frame's limit from the current row (None: no distance); and -1 or 1 if
    the limit is the partition's first or last row."""
    if side is None:
        # CURRENT ROW, or a frame without BETWEEN.
        return 0, 0
    sign = 1 if side.upper() == "FOLLOWING" else -1
    if not isinstance(value, exp.Expr):
        return None, sign
    if unit is not FrameUnit.RANGE:
        found = whole_number(value)
        if found is None:
            raise QueryError(
                "bad-frame",
                f"{describe(value)} is not a number of {unit}",
                remedy="write ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
            )
        return sign * found, 0
    return sign * _difference(value, constant(value), key()), 0


def _difference(node: Node, value: Expr, key: DataType | None) -> int:
    """The typed distance ``value`` in a RANGE frame of a window, in the units of :class:`Frame`."""
    number = value.value if isinstance(value, Literal) else None
    if key is not None and isinstance(number, int | Decimal) and number >= 0:
        found = _in_units(Decimal(number), value.type, key)
        if found is not None and found == int(found) <= _GREATEST:
            return int(found)
    order = "several sort keys" if key is None else f"a sort key of type {key}"
    raise QueryError(
        "bad-frame",
        f"RANGE with the limit {describe(node)} beside {order}",
        remedy="order by one integer, DECIMAL of up to 18 digits, date (a number of days) or "
        "timestamp (INTERVAL '5' MINUTES); or write ROWS",
    )


def _in_units(number: Decimal, kind: DataType, key: DataType) -> Decimal | None:
    """A RANGE frame's distance of type ``kind`` in units of the sort key; None if it can't be."""
    if kind.kind is TypeKind.INTERVAL:
        day = number / _DAY if key.kind is TypeKind.DATE else None
        return number if key.kind in TIMESTAMPS else day
    if key.kind is TypeKind.DECIMAL and key.precision <= _DIGITS and kind.kind in NUMERIC:
        return number.scaleb(key.scale)
    plain = key.kind in INTEGRAL or key.kind is TypeKind.DATE
    return number if plain and kind.kind in INTEGRAL else None


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
            if (name := function_over(window)) in WINDOWED:
                with at(window):
                    raise unsupported(
                        f"{name}() OVER (...) beside QUALIFY",
                        "write it in a subquery in FROM, and the condition above in WHERE",
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

        found = limit_of(condition, ranked)
        if found is None:
            raise unsupported(
                "QUALIFY with another condition than a limit of one ranking", f"write {_EXAMPLE}"
            )
        window, limit = found
        ranking = _ranking(window, limit)
    items = tuple(_placed(item, window) for item in query.items)
    made = replace(clauses, qualify=None, ranking=ranking)
    return replace(query, items=items, post_join=made)


def _placed(item: SelectItem, window: Node) -> SelectItem:
    """The SELECT item with :func:`place` in place of the ranking function ``window``."""

    def found(part: Node) -> Node:
        return place(part) if part == window else part

    return item if item.node is None else replace(item, node=item.node.copy().transform(found))


def _ranking(window: Node, limit: int | None) -> RowRanking:
    """The ranking that the function in ``window`` defines, limited to ``limit`` places."""
    name, order = function_over(window), window.args.get("order")
    with at(window):
        framed = {"spec"} if WINDOWED.get(name) in FRAMED else set()
        refuse_others(window, {"this", "partition_by", "order", "over"} | framed)
        if order is None and (name not in TOTALS or window.args.get("spec") is not None):
            raise unsupported(
                f"{name}() without ORDER BY", f"write {name}() OVER (PARTITION BY k ORDER BY x)"
            )
        if call_over(window).expressions and name in _FUNCTIONS:
            raise QueryError(
                "bad-arguments", f"{name}() takes no arguments", remedy=f"write {name}()"
            )
        partition = tuple(map(bare, window.args.get("partition_by") or ()))
        function = _FUNCTIONS.get(name, RankFunction.ROW_NUMBER)
        keys = () if order is None else tuple(order.expressions)
        return RowRanking(function, partition, keys, limit)


def _refuse_beside(
    clauses: PostJoin, items: Iterable[SelectItem], what: str, *, order: bool = True
) -> None:
    """Reject other post-join clauses in a statement with a ranking; ``what`` names the ranking."""
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
            found = limit_of(part, ranked)
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
    ranking = _ranking(window, limits[0][1])
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
    """The source inside surrounding queries (such as of WITH) that only rename its columns."""
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
    """Names of the columns of subquery ``inner`` that are equal in all rows of a partition."""
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
    """``query`` with the ranking in its subquery ``inner`` lifted into a clause of ``query``."""
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
    inside = replace(inner, items=tuple(items))
    post_join = PostJoin(ranking=replace(ranking, partition=partition, order=tuple(order)))
    sources = (replace(source, of=inside, columns=columns),)
    return replace(query, sources=sources, conditions=conditions, post_join=post_join)

"""``[NOT] EXISTS`` and ``[NOT] IN`` as semi and anti joins, or as values of LEFT JOINs.

``x IN (SELECT y ...)`` is a semi join with ``x = y`` as a further condition: where the comparison
is unknown, WHERE keeps no row either. ``x NOT IN (...)`` keeps no row once a ``y`` is NULL, and one
with NULL in ``x`` only if there is no ``y``. Unless conditions exclude NULL, a correlated one is an
anti join with ``x = y OR y IS NULL OR x IS NULL``; another one is an anti join beside a part with
one row, which says whether there is a ``y``, and one that is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.binding.typecheck import operands
from anabranch_planner.sql.syntax import called, describe
from anabranch_planner.sql.unresolved import (
    Condition,
    FromEntry,
    Node,
    OuterSide,
    PostJoin,
    SelectItem,
    Unresolved,
    unsupported,
)
from anabranch_planner.subqueries.grouped import GroupedEntry
from anabranch_planner.subqueries.joins import (
    Inner,
    Joins,
    all_of,
    as_where,
    groups_of,
    known,
)
from anabranch_planner.subqueries.names import OUTER, FromTables, column_of, columns_in, replaced

_ONE_COLUMN_EACH = "select one column for each that is compared"


def as_join(
    joins: Joins, holder: Node, whole: Node, conjuncts: list[Node], *, negated: bool
) -> Node | None:
    """Add a semi or anti join for ``whole``, a conjunct of WHERE: ``[NOT] EXISTS``, ``[NOT] IN``.

    Args:
        conjuncts: all conjuncts of WHERE.

    Returns:
        A condition beside the join, if one is needed.
    """
    inner = joins.inner(holder)
    tested, shown = _compared(joins, holder, inner)
    if _is_single(inner):
        return _conjunct(_of_single(joins, inner, tested, shown, whole), negated=negated)
    right = _right_of(joins, inner, shown)
    correlated = any(True for _ in inner.equalities)
    if not tested and not correlated:
        inner.pairs()
        return _conjunct(_flags(joins, right, [_some()])[0], negated=negated)
    equal = [
        exp.EQ(this=mine, expression=right.over(own))
        for mine, own in zip(tested, shown, strict=True)
    ]
    condition = None
    if negated and tested:
        unknown = _may_be_null(tested, conjuncts, joins), _may_be_null(shown, _of(inner), inner)
        if any(unknown) and correlated:
            equal = list(map(_unless_unequal, equal))
        elif any(unknown) and len(tested) > 1:
            raise unsupported(
                f"{describe(whole)} where columns may be NULL",
                "write NOT EXISTS with equalities, or add IS NOT NULL for all compared columns",
            )
        elif any(unknown):
            inner.pairs()
            condition = _unless_null(joins, right, tested[0], shown[0], unknown)
    if right.unique and not negated:
        joins.join(right.entry(), [*right.on(), *equal], inner=True)
        return None
    kind = JoinKind.ANTI if negated else JoinKind.SEMI
    on = all_of([*right.on(), *equal])
    joins.sides.append(OuterSide(kind, right.entry(), on))
    return condition


def as_value(joins: Joins, holder: Node, *, monotone: bool) -> Node:
    """EXISTS or IN as a truth value, of a LEFT JOIN with the groups of matching rows.

    Args:
        monotone: whether unknown may be taken for false.

    Raises:
        QueryError: ``unsupported-sql``: IN of rows that may be unknown, or another condition than
            an equality correlates the subquery.
    """
    inner = joins.inner(holder)
    tested, shown = _compared(joins, holder, inner)
    if _is_single(inner):
        return _of_single(joins, inner, tested, shown, holder)
    for column in (c for own in shown for c in columns_in(own)):
        if inner.refer(column) is not None:
            raise unsupported(
                f"{describe(column)}, a column of the outer query, in the SELECT list of IN",
                "compare it in the WHERE of EXISTS",
            )
    right, correlated = _right_of(joins, inner, shown), inner.pairs()
    compared = [(right.raw(own), mine) for own, mine in zip(shown, tested, strict=True)]
    given = [(right.raw(own), outer) for own, outer in correlated]
    if not given and not compared:
        return _flags(joins, right, [_some()])[0]
    found = known(_grouped(joins, inner, right, [*given, *compared]).key(0))
    if monotone or not compared:
        return found
    if len(compared) > 1:
        raise unsupported(
            f"{describe(holder)}, rows whose comparison may be unknown, other than beside AND and "
            "OR in WHERE",
            "write EXISTS with equalities",
        )
    own, mine = compared[0]
    if given:
        entry = _grouped(joins, inner, right, given, values := [_count(exp.Star()), _count(own)])
        rows, valid = map(entry.over, values)
        none, null = _is_null(rows), exp.GT(this=rows, expression=valid)
    else:
        some, null = _flags(joins, right, [_some(), _some_null(own)])
        none = exp.Not(this=exp.Paren(this=some))
    unknown = exp.Or(this=exp.Paren(this=null), expression=_is_null(mine))
    ifs = (found, exp.true()), (none, exp.false()), (unknown, exp.Null())
    return exp.Case(ifs=[exp.If(this=when, true=then) for when, then in ifs], default=exp.false())


def _grouped(
    joins: Joins,
    inner: Inner,
    right: _Right,
    pairs: Sequence[tuple[Node, Node]],
    values: Sequence[Node] = (),
) -> GroupedEntry:
    """The rows of a subquery grouped by (own expression, outer expression), as a LEFT JOIN.

    Args:
        values: aggregates to be read.
    """
    rows = right.rows()
    tables = FromTables.of(rows, joins.streams)
    keys = list(dict.fromkeys(tables.qualified(own) for own, _ in pairs))
    entry = GroupedEntry(rows, tables, keys, joins.alias(), lambda _: None)
    for value in values:
        entry.over(value)
    on: list[Node] = [
        exp.EQ(this=entry.key(keys.index(tables.qualified(own))), expression=outer.copy())
        for own, outer in pairs
    ]
    joins.join(entry.entry(inner.written), on, inner=False)
    return entry


def _conjunct(value: Node, *, negated: bool) -> Node:
    return as_where([exp.Not(this=exp.Paren(this=value)) if negated else value])


# --- the compared columns ------------------------------------------------------------------------


def _compared(joins: Joins, holder: Node, inner: Inner) -> tuple[list[Node], list[Node]]:
    """The expressions before IN, over the query's columns, and the SELECT list; of EXISTS none."""
    if not isinstance(holder, exp.In):
        return [], []
    tested = holder.this.expressions if isinstance(holder.this, exp.Tuple) else [holder.this]
    shown = [item.node for item in inner.query.items if item.node is not None]
    if len(tested) != len(inner.query.items) or len(shown) != len(tested):
        raise unsupported(
            f"{describe(holder)}, whose subquery shows another number of columns", _ONE_COLUMN_EACH
        )

    def found(part: Node) -> Node:
        outer = joins.refer(part) if isinstance(part, exp.Column) else None
        return part if outer is None else called(outer, describe(part))

    return [replaced(node, found) for node in tested], shown


def _of(inner: Inner) -> list[Node]:
    """The conjuncts of a subquery that do not correlate it."""
    return [part for c in inner.query.conditions for part in operands(c.node, exp.And)]


def _may_be_null(nodes: Sequence[Node], conjuncts: list[Node], of: Joins | Inner) -> bool:
    """Whether no conjunct says that ``nodes`` are NOT NULL."""
    excluded = [
        of.tables.qualified(part.this.this)
        for part in conjuncts
        if isinstance(part, exp.Not)
        and isinstance(part.this, exp.Is)
        and isinstance(part.this.expression, exp.Null)
    ]
    wanted = (of.tables.qualified(n) for n in nodes if not isinstance(n, exp.Literal))
    return not all(node in excluded for node in wanted)


def _unless_null(
    joins: Joins, right: _Right, tested: Node, shown: Node, unknown: tuple[bool, bool]
) -> Node:
    """The condition beside the anti join of NOT IN where values may be NULL."""
    some, null = _flags(joins, right, [_some(), _some_null(right.raw(shown))])
    none = exp.Not(this=exp.Paren(this=some))
    parts: list[Node] = [known(tested)] if unknown[0] else []
    parts += [exp.Not(this=exp.Paren(this=null))] if unknown[1] else []
    return as_where([exp.Or(this=none, expression=exp.Paren(this=all_of(parts)))])


def _unless_unequal(equality: exp.EQ) -> Node:
    """Whether two values are not known to be unequal."""
    one = exp.Or(this=equality, expression=_is_null(equality.this))
    return exp.Paren(this=exp.Or(this=one, expression=_is_null(equality.expression)))


def _is_null(node: Node) -> Node:
    return exp.Is(this=node.copy(), expression=exp.Null())


# --- one row: aggregates without GROUP BY, truths about all rows ---------------------------------


def _is_limited(clauses: PostJoin) -> bool:
    some = clauses.limit, clauses.offset, clauses.qualify, *clauses.distinct_on
    return any(node is not None for node in some)


def _is_single(inner: Inner) -> bool:
    clauses = inner.query.post_join
    return inner.is_grouped and clauses is not None and not clauses.group and not clauses.group_all


def _of_single(
    joins: Joins, inner: Inner, tested: list[Node], shown: list[Node], whole: Node
) -> Node:
    """``x IN (SELECT max(y) ...)`` is ``x = (SELECT max(y) ...)``; EXISTS is its HAVING."""
    clauses = inner.query.post_join or PostJoin()
    having = clauses.having
    if _is_limited(clauses) or (tested and having is not None) or len(tested) > 1:
        raise unsupported(
            f"{describe(whole)} over one row of aggregates", "compare it with a scalar subquery"
        )
    if tested:
        value = joins.of_groups(inner, shown[0], strict=False)
        return exp.EQ(this=tested[0], expression=exp.Paren(this=value))
    if having is None:
        return exp.true()
    query = replace(inner.query, post_join=replace(clauses, having=None))
    value = joins.of_groups(replace(inner, query=query), having, strict=False)
    return exp.Anonymous(this="coalesce", expressions=[value, exp.false()])


def _some() -> Node:
    return exp.GT(this=_count(exp.Star()), expression=exp.Literal.number(0))


def _some_null(node: Node) -> Node:
    return exp.GT(this=_count(exp.Star()), expression=_count(node))


def _count(node: Node) -> Node:
    return exp.Anonymous(this="count", expressions=[node.copy()])


def _flags(joins: Joins, right: _Right, truths: list[Node]) -> list[Node]:
    """The columns of a part with one row: ``truths`` about all rows of a subquery. The row changes
    with them only, not with every row of the subquery.
    """
    names = [f"subquery_value{n}" for n, _ in enumerate(truths, 1)]
    items = [SelectItem(exp.Literal.number(1), "subquery_key1")]
    items += map(SelectItem, truths, names)
    nested = ("an aggregate", right.written)
    query = replace(right.rows(), items=tuple(items), post_join=PostJoin(), nested=nested)
    alias = joins.alias()
    joins.join(FromEntry(query, alias, node=right.written), [], inner=True)
    return [column_of(alias, name) for name in names]


# --- the right side of a join --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Right:
    """The rows of a subquery as an entry of FROM.

    Attributes:
        over: expression of the subquery -> over columns of the entry.
        on: the conditions that correlate it. ``entry``: the entry, once all expressions over it
            are known.
        rows: its rows as a query. ``raw``: expression of the subquery -> over these rows.
        unique: whether rows differ in the compared columns.
    """

    over: Callable[[Node], Node]
    on: Callable[[], list[Node]]
    entry: Callable[[], FromEntry]
    rows: Callable[[], Unresolved]
    raw: Callable[[Node], Node]
    written: Node
    unique: bool = False


def _right_of(joins: Joins, inner: Inner, shown: list[Node]) -> _Right:
    clauses = inner.query.post_join or PostJoin()
    if inner.is_grouped and not _is_limited(clauses):
        return _groups(joins, inner, shown)
    # The first rows exist if there are any.
    clauses = clauses if shown else replace(clauses, limit=None)
    if _is_limited(clauses) or inner.is_grouped:
        return _limited(joins, inner, shown)
    query, only = _plain(inner), inner.query.sources[0]
    if len(query.sources) == 1 and isinstance(only.of, str) and query.nested is None:
        return _stream(joins, inner, only)
    return _rows(joins, inner, query)


def _stream(joins: Joins, inner: Inner, source: FromEntry) -> _Right:
    """A single stream: its conditions become the join's."""
    alias = joins.alias(source.alias or str(source.of))
    entry = replace(source, alias=alias)

    def over(node: Node) -> Node:
        return _over(inner, node, lambda column: column_of(alias, column.name, column))

    def on() -> list[Node]:
        return list(map(over, (*_of(inner), *inner.correlated)))

    return _Right(over, on, lambda: entry, lambda: _plain(inner), lambda n: n, inner.written)


def _rows(joins: Joins, inner: Inner, query: Unresolved) -> _Right:
    """A join as a subquery in FROM, which shows the columns that are read."""
    alias, names = joins.alias(), dict[Node, str]()

    def column(part: exp.Column) -> Node:
        name = names.setdefault(part.copy(), f"subquery_key{len(names) + 1}")
        return column_of(alias, name, part)

    def entry() -> FromEntry:
        items = tuple(SelectItem(own, name) for own, name in names.items())
        return FromEntry(replace(query, items=items), alias, node=inner.written)

    def over(node: Node) -> Node:
        return _over(inner, node, column)

    def on() -> list[Node]:
        return list(map(over, inner.correlated))

    return _Right(over, on, entry, lambda: query, lambda node: node, inner.written)


def _groups(joins: Joins, inner: Inner, shown: list[Node]) -> _Right:
    pairs, having = inner.pairs(), (inner.query.post_join or PostJoin()).having
    groups = groups_of(inner.query, inner.tables)
    keys = list(dict.fromkeys([*groups, *(own for own, _ in pairs)]))
    for column in () if having is None else columns_in(having):
        if inner.refer(column) is not None:
            raise unsupported(
                f"{describe(column)}, a column of the outer query, in HAVING beside GROUP BY",
                "compare it with a scalar subquery",
            )
    made = GroupedEntry(inner.query, inner.tables, keys, joins.alias(), inner.refer, having)
    once: list[FromEntry] = []

    def entry() -> FromEntry:
        if not once:
            once.append(made.entry(inner.written))
        return once[0]

    def on() -> list[Node]:
        return [exp.EQ(this=made.key(keys.index(own)), expression=o.copy()) for own, o in pairs]

    own = {inner.tables.qualified(node) for node in shown}
    return _Right(
        made.over,
        on,
        entry,
        lambda: Unresolved((entry(),), (), ()),
        made.over,
        inner.written,
        unique=bool(shown) and set(groups) <= own | {key for key, _ in pairs},
    )


def _limited(joins: Joins, inner: Inner, shown: list[Node]) -> _Right:
    """A subquery with LIMIT or the like, which is no correlated one, as a subquery in FROM."""
    alias = joins.alias()
    if inner.correlated or not shown:
        raise unsupported(
            "LIMIT, OFFSET or QUALIFY in a correlated subquery, or in EXISTS",
            "leave it out, or compare with a scalar subquery of one aggregate",
        )
    names = [f"subquery_key{n}" for n, _ in enumerate(shown, 1)]
    query = replace(inner.query, items=tuple(map(SelectItem, shown, names)))
    entry = FromEntry(query, alias, node=inner.written)

    def over(node: Node) -> Node:
        return column_of(alias, names[next(n for n, one in enumerate(shown) if one is node)])

    rows = Unresolved((entry,), (), ())
    return _Right(over, list, lambda: entry, lambda: rows, over, inner.written)


def _over(inner: Inner, node: Node, change: Callable[[exp.Column], Node]) -> Node:
    """``node`` with its own columns changed and the outer query's columns resolved."""

    def found(part: Node) -> Node:
        if not isinstance(part, exp.Column) or OUTER in part.meta:
            return part
        made = inner.refer(part) or change(part)
        return called(made, describe(part))

    return replaced(inner.tables.qualified(node), found)


def _plain(inner: Inner) -> Unresolved:
    """The rows of a subquery whose number does not matter. Its semi joins become inner joins."""
    query = replace(inner.query, post_join=None, nested=None)
    if not query.outer:
        return query
    if any(side.kind is not JoinKind.SEMI for side in query.outer):
        return replace(query, nested=("EXISTS or NOT EXISTS", inner.written))
    sources, conditions = list(query.sources), list[Condition]()
    for condition in query.conditions:
        node = inner.tables.qualified(condition.node)
        where = isinstance(condition.node.parent, exp.Where)
        conditions.append(replace(condition, node=as_where([node]) if where else node))
    for side in query.outer:
        sources.append(side.source)
        if side.on is not None:
            conditions.append(Condition(side.on, len(sources)))
    return replace(
        query, sources=tuple(sources), conditions=tuple(conditions), outer=(), post_join=None
    )

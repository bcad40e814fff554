"""``[NOT] EXISTS`` and ``[NOT] IN`` as semi and anti joins, or as values of LEFT JOINs.

``x IN (SELECT y ...)`` is a semi join with the additional condition ``x = y``: WHERE drops rows
whose comparison is unknown, as a semi join does. ``x NOT IN (...)`` keeps no row if any ``y`` is
NULL, and keeps rows with NULL in ``x`` only if there is no ``y``. Unless conditions exclude NULL, a
correlated NOT IN is an anti join with ``x = y OR y IS NULL OR x IS NULL``; an uncorrelated NOT IN
is an anti join, plus a join with a query of one row, whose columns say whether there is a ``y``,
and whether a ``y`` is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.sql.unresolved import (
    FromEntry,
    Node,
    OuterSide,
    PostJoin,
    SelectItem,
    called,
    describe,
    not_null,
    unsupported,
)
from anabranch_planner.subqueries.grouped import GroupedEntry
from anabranch_planner.subqueries.joins import Inner, Joins, all_of, as_where
from anabranch_planner.subqueries.names import FromTables, column_of, columns_in, replaced
from anabranch_planner.subqueries.outer_values import by_equalities
from anabranch_planner.subqueries.right_sides import RightSide, is_limited, own_conjuncts, right_of
from anabranch_planner.subqueries.scalars import of_groups

_ONE_COLUMN_EACH = "select one column for each that is compared"


def as_join(
    joins: Joins, holder: Node, whole: Node, conjuncts: list[Node], *, negated: bool
) -> Node | None:
    """Add a semi or anti join for ``whole``, a conjunct of WHERE: ``[NOT] EXISTS``, ``[NOT] IN``.

    Args:
        conjuncts: all conjuncts of WHERE.

    Returns:
        A condition that WHERE needs in addition to the join, or None.
    """
    inner = joins.inner(holder)
    tested, shown = _compared(joins, holder, inner)
    if _is_single(inner):
        return _conjunct(_of_single(joins, inner, tested, shown, whole), negated=negated)
    right = right_of(joins, inner, shown)
    correlated = any(True for _ in inner.equalities)
    if not tested and not correlated:
        inner.pairs()
        return _conjunct(_flags(joins, right, [_some()])[0], negated=negated)
    equal: list[Node] = [
        exp.EQ(this=mine, expression=right.over(own))
        for mine, own in zip(tested, shown, strict=True)
    ]
    condition = None
    if negated and tested:
        unknown = (
            _may_be_null(tested, conjuncts, joins),
            _may_be_null(shown, own_conjuncts(inner), inner),
        )
        if any(unknown) and correlated:
            equal = [_unless_unequal(one.this, one.expression) for one in equal]
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
    """EXISTS or IN as a boolean value: a column of a LEFT JOIN with the subquery's groups.

    Args:
        monotone: whether the caller treats false and unknown (NULL) alike.

    Raises:
        QueryError: ``unsupported-sql``: IN of rows whose comparison may be unknown, or a subquery
            correlated by a condition that is not an equality.
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
    inner = by_equalities(joins, inner)
    right, correlated = right_of(joins, inner, shown), inner.pairs()
    compared = [(right.raw(own), mine) for own, mine in zip(shown, tested, strict=True)]
    given = [(right.raw(own), outer) for own, outer in correlated]
    if not given and not compared:
        return _flags(joins, right, [_some()])[0]
    found = not_null(_grouped(joins, inner, right, [*given, *compared]).key(0))
    if monotone or not compared:
        return found
    if len(compared) > 1:
        raise unsupported(
            f"{describe(holder)}, rows whose comparison may be unknown, other than beside AND and "
            "OR in WHERE",
            "write EXISTS with equalities",
        )
    own, mine = compared[0]
    none: Node
    null: Node
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
    right: RightSide,
    pairs: Sequence[tuple[Node, Node]],
    values: Sequence[Node] = (),
) -> GroupedEntry:
    """Add a LEFT JOIN with the subquery's rows, grouped by the inner sides of ``pairs`` (inner
    expression, outer expression).

    Args:
        values: aggregates of the subquery's groups that the join has to provide.
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
    """The compared expressions of IN: the left one (over the outer query), and the subquery's."""
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


def _may_be_null(nodes: Sequence[Node], conjuncts: list[Node], of: Joins | Inner) -> bool:
    """Whether a value of ``nodes`` may be NULL, as not all have a NOT NULL conjunct."""
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
    joins: Joins, right: RightSide, tested: Node, shown: Node, unknown: tuple[bool, bool]
) -> Node:
    """The condition that NOT IN needs beside its anti join if values may be NULL."""
    some, null = _flags(joins, right, [_some(), _some_null(right.raw(shown))])
    none = exp.Not(this=exp.Paren(this=some))
    parts: list[Node] = [not_null(tested)] if unknown[0] else []
    parts += [exp.Not(this=exp.Paren(this=null))] if unknown[1] else []
    return as_where([exp.Or(this=none, expression=exp.Paren(this=all_of(parts)))])


def _unless_unequal(one: Node, other: Node) -> Node:
    """The condition of NOT IN's anti join: the two values are equal, or one of them is NULL."""
    equal = exp.EQ(this=one.copy(), expression=other.copy())
    either = exp.Or(this=equal, expression=_is_null(one))
    return exp.Paren(this=exp.Or(this=either, expression=_is_null(other)))


def _is_null(node: Node) -> Node:
    return exp.Is(this=node.copy(), expression=exp.Null())


# --- one row: aggregates without GROUP BY, truths about all rows ---------------------------------


def _is_single(inner: Inner) -> bool:
    clauses = inner.query.post_join
    return inner.is_grouped and clauses is not None and not clauses.group and not clauses.group_all


def _of_single(
    joins: Joins, inner: Inner, tested: list[Node], shown: list[Node], whole: Node
) -> Node:
    """Rewrite a subquery that has a single row: ``x IN (SELECT max(y) ...)`` as ``x = (SELECT
    max(y) ...)``, and EXISTS as the subquery's HAVING condition."""
    clauses = inner.query.post_join or PostJoin()
    having = clauses.having
    if is_limited(clauses) or (tested and having is not None) or len(tested) > 1:
        raise unsupported(
            f"{describe(whole)} over one row of aggregates", "compare it with a scalar subquery"
        )
    if tested:
        value = of_groups(joins, inner, shown[0], strict=False)
        return exp.EQ(this=tested[0], expression=exp.Paren(this=value))
    if having is None:
        return exp.true()
    query = replace(inner.query, post_join=replace(clauses, having=None))
    value = of_groups(joins, replace(inner, query=query), having, strict=False)
    return exp.Anonymous(this="coalesce", expressions=[value, exp.false()])


def _some() -> Node:
    return exp.GT(this=_count(exp.Star()), expression=exp.Literal.number(0))


def _some_null(node: Node) -> Node:
    return exp.GT(this=_count(exp.Star()), expression=_count(node))


def _count(node: Node) -> Node:
    return exp.Anonymous(this="count", expressions=[node.copy()])


def _flags(joins: Joins, right: RightSide, truths: list[Node]) -> list[Node]:
    """A column for each of ``truths`` (conditions about all rows of a subquery), from a query with
    one row, which changes only if a truth changes, not with every row of the subquery."""
    names = [f"subquery_value{n}" for n, _ in enumerate(truths, 1)]
    items = [SelectItem(exp.Literal.number(1), "subquery_key1")]
    items += map(SelectItem, truths, names)
    nested = ("an aggregate", right.written)
    query = replace(right.rows(), items=tuple(items), post_join=PostJoin(), nested=nested)
    alias = joins.alias()
    joins.join(FromEntry(query, alias, node=right.written), [], inner=True)
    return [column_of(alias, name) for name in names]

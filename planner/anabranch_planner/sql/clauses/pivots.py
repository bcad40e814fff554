"""PIVOT as groups: ``FROM (SELECT k, p, x FROM t) PIVOT (sum(x) FOR p IN ('a', 'b'))`` is ``FROM
(SELECT k, sum(x) FILTER (WHERE p <=> 'a') AS a, ... FROM (...) GROUP BY k)``.

As in Spark, the rows are grouped by the columns that PIVOT does not name. If a group has no rows
with a value of ``p``, the value's column is NULL, also for a count.
"""

from __future__ import annotations

from sqlglot import exp

from anabranch_planner.sql.clauses.spellings import call
from anabranch_planner.sql.unresolved import Node, at, describe, unsupported

_ALIAS = "anabranch_pivoted"
_COUNTS = frozenset({"approx_count_distinct", "count", "count_if"})
_NUMBERS = frozenset({"avg", "mean", "median", "percentile", "stddev", "sum", "variance"})
#: Aggregates that are permitted in PIVOT; over no rows all except counts are NULL.
_KNOWN = _COUNTS | _NUMBERS | {
    "any_value", "bool_and", "bool_or", "every", "first", "last", "max", "max_by", "min", "min_by",
    "percentile_approx",
}  # fmt: skip


def pivoted(table: Node, pivot: exp.Pivot) -> exp.Subquery:
    """The query that replaces ``table`` with its ``pivot``.

    Raises:
        QueryError: ``unsupported-sql``: the columns of ``table``, or the values, are not listed.
    """
    fields = pivot.args["fields"]
    column = fields[0].this if len(fields) == 1 else None
    values = fields[0].expressions if column is not None else []
    if not isinstance(column, exp.Column) or not values or fields[0].args.get("query"):
        raise unsupported(
            "PIVOT without a list of values of one column", "write FOR column IN ('a', 'b')"
        )
    calls = [_aggregate(one) for one in pivot.expressions]
    names = {str(inner.this).lower() for _, inner in calls}
    if names & _COUNTS and not names <= _COUNTS | _NUMBERS:
        # The other aggregates' types decide if Spark returns 0 or NULL for a count of no rows.
        raise unsupported(
            f"PIVOT with {' beside '.join(describe(inner) for _, inner in calls)}",
            "write each in a PIVOT of its own, and join the two",
        )
    keys = _keys(table, column, [inner for _, inner in calls])
    items: list[Node] = [exp.column(key, quoted=True) for key in keys]
    for value in values:
        wanted, shown = value, value.name or describe(value)
        if isinstance(value, exp.Alias | exp.PivotAlias):
            wanted, shown = value.this, value.args["alias"].name
        if isinstance(wanted, exp.Null):
            shown = "null" if wanted is value else shown
        holds = exp.NullSafeEQ(this=column.copy(), expression=wanted.copy())
        for name, inner in calls:
            title = f"{shown}_{name}" if len(calls) > 1 else shown
            items.append(exp.alias_(_cell(inner, holds), title, quoted=True))
    inner = table.copy()
    inner.set("pivots", None)
    joins = inner.args.get("joins")
    inner.set("joins", None)
    if not inner.args.get("alias"):
        inner.set("alias", exp.TableAlias(this=exp.to_identifier(_ALIAS)))
    select = exp.Select(expressions=items).from_(inner, copy=False)
    if keys:
        named = [exp.column(key, quoted=True) for key in keys]
        select.set("group", exp.Group(expressions=named))
    alias = pivot.args.get("alias") or table.args.get("alias")
    made = exp.Subquery(this=select, alias=alias)
    made.set("joins", joins)
    made.meta.update(table.meta)
    return made


def _aggregate(item: Node) -> tuple[str, Node]:
    """Output column name and call of an aggregate in the clause PIVOT."""
    inner = item.unalias()
    name = item.alias or describe(inner).lower().replace("(*)", "(1)")
    if not isinstance(inner, exp.Anonymous) or str(inner.this).lower() not in _KNOWN:
        with at(inner):
            raise unsupported(
                f"{describe(inner)} in PIVOT",
                f"write one of {', '.join(sorted(_KNOWN))}, and compute with it outside",
            )
    return name, inner


def _keys(table: Node, column: exp.Column, calls: list[Node]) -> list[str]:
    """The columns of ``table`` that PIVOT does not read, by which the rows are grouped."""
    select = table.this if isinstance(table, exp.Subquery) else None
    items = select.expressions if isinstance(select, exp.Select) else []
    names = [item.alias_or_name for item in items]
    if not names or "" in names or "*" in names:
        shown = describe(table.this) if isinstance(table, exp.Table) else "t"
        read = {c.name: 0 for one in (*calls, column) for c in one.find_all(exp.Column)}
        raise unsupported(
            "PIVOT of a table whose columns are not listed",
            f"write FROM (SELECT key, {', '.join(sorted(read))} FROM {shown}) PIVOT (...), with "
            "the columns that make the groups as key",
        )
    read = {c.name.lower(): 0 for one in (*calls, column) for c in one.find_all(exp.Column)}
    return [name for name in names if name.lower() not in read]


def _cell(inner: Node, holds: Node) -> Node:
    """The aggregate ``inner`` over rows for which ``holds`` is true; NULL without such rows."""
    kept = exp.Filter(this=inner.copy(), expression=exp.Where(this=holds.copy()))
    if str(inner.this).lower() not in _COUNTS:
        return kept
    some = exp.GT(this=call("count_if", holds.copy()), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=some, true=kept)])

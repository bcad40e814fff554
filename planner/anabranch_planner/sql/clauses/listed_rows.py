"""Clauses that turn columns into rows: UNPIVOT as a subquery, and ``stack()`` as ``inline()``.

``FROM t UNPIVOT (x FOR y IN (a, b))`` is ``FROM (SELECT * EXCEPT (a, b) FROM t LATERAL VIEW
inline(array(named_struct('y', 'a', 'x', a), ...)) WHERE x IS NOT NULL)``.
"""

from __future__ import annotations

from sqlglot import exp

from anabranch_planner.sql.clauses.pivots import pivoted
from anabranch_planner.sql.clauses.qualified import whole_number
from anabranch_planner.sql.clauses.spellings import call
from anabranch_planner.sql.unresolved import Node, at, describe, unsupported

_ALIAS = "anabranch_unpivoted"


def write_out_rows(statement: Node) -> None:
    """Replace PIVOT, UNPIVOT and ``stack()`` in ``statement``.

    Raises:
        QueryError: ``unsupported-sql``: UNPIVOT of several columns at once; PIVOT of a table whose
            columns are unknown.
    """
    for node in list(statement.find_all(exp.Anonymous)):
        if str(node.this).lower() == "stack" and len(node.expressions) > 1:
            with at(node):
                node.replace(_stacked(node))
    for table in list(statement.find_all(exp.Table, exp.Subquery)):
        for pivot in table.args.get("pivots") or ():
            with at(table), at(pivot):
                made = _unpivoted if pivot.args.get("unpivot") else pivoted
                table.replace(made(table, pivot))


def _stacked(node: exp.Anonymous) -> Node:
    count, *values = node.expressions
    number = whole_number(count)
    if not number:
        raise unsupported(f"stack({describe(count)}, ...)", "write the number of rows as a literal")
    width = -(-len(values) // number)
    values += [exp.Null() for _ in range(width * number - len(values))]
    rows = list[Node]()
    for start in range(0, len(values), width):
        named = list[Node]()
        for place, value in enumerate(values[start : start + width]):
            named += [exp.Literal.string(f"col{place}"), value.copy()]
        rows.append(call("named_struct", *named))
    made = call("inline", call("array", *rows))
    made.meta.update(node.meta)
    return made


def _unpivoted(table: Node, pivot: exp.Pivot) -> exp.Subquery:
    values, fields = pivot.expressions, pivot.args["fields"]
    columns = fields[0].expressions if len(fields) == 1 else []
    several = any(one.find(exp.Tuple) for one in (*values, *columns))
    if len(values) != 1 or not columns or several:
        raise unsupported("UNPIVOT of several columns at once", "write UNION ALL of their SELECTs")
    value, name = values[0].name, fields[0].this.name
    rows, names = list[Node](), list[Node]()
    for one in columns:
        column, shown = one, one.alias_or_name
        if isinstance(one, exp.Alias | exp.PivotAlias):
            column, shown = one.this, one.args["alias"].name
        names.append(column.copy())
        rows.append(
            call(
                "named_struct",
                exp.Literal.string(name),
                exp.Literal.string(shown),
                exp.Literal.string(value),
                column.copy(),
            )
        )
    alias = pivot.args.get("alias") or table.args.get("alias")
    inner = table.copy()
    inner.set("pivots", None)
    joins = inner.args.get("joins")
    inner.set("joins", None)
    view = exp.Lateral(
        this=call("inline", call("array", *rows)),
        view=True,
        alias=exp.TableAlias(this=exp.to_identifier(_ALIAS)),
    )
    select = exp.Select(expressions=[exp.Star(except_=names)]).from_(inner, copy=False)
    select.set("laterals", [view])
    if not pivot.args.get("include_nulls"):
        known = exp.Not(this=exp.Is(this=exp.column(value, _ALIAS), expression=exp.Null()))
        select.set("where", exp.Where(this=known))
    if alias is None and isinstance(table, exp.Table):
        alias = exp.TableAlias(this=table.this.copy())
    made = exp.Subquery(this=select, alias=alias)
    made.set("joins", joins)
    made.meta.update(table.meta)
    return made

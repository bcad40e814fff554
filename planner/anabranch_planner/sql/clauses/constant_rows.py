"""Rows of a statement that come from no stream: ``generate_series(1, 9)``, ``VALUES`` before all
joins, a SELECT without FROM.

A query with exactly one row, present from the start, is expanded into these rows: ``SELECT n FROM
(SELECT count(*) >= 0 AS one FROM s) LATERAL VIEW explode(sequence(1, 9)) t AS n``, where ``s`` is a
stream that the statement reads anyway. Joined with another table without a condition, the rows
become a ``LATERAL explode`` of that table's rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from anabranch_planner.sql.clauses.qualified import whole_number
from anabranch_planner.sql.clauses.spellings import call
from anabranch_planner.sql.unresolved import Node, as_written, at, unsupported

_ONE, _VIEW = "anabranch_one", "anabranch_rows"
#: Table function in FROM -> name of its column without an alias.
_SERIES = {"generate_series": "generate_series", "range": "id"}
_WITHIN = (exp.Subquery, exp.CTE)


def read_constants(statement: Node) -> None:
    """Rewrite the entries of FROM in ``statement`` whose rows come from no stream.

    Raises:
        QueryError: ``unsupported-sql``: no stream is read at all.
    """
    for table in list(statement.find_all(exp.Table)):
        if isinstance(table.this, exp.Anonymous) and str(table.this.this).lower() in _SERIES:
            with at(table.this):
                _series(table, statement)
    for values in list(statement.find_all(exp.Values)):
        # VALUES in an inner join is rewritten as a look-up (see ``clauses.values``).
        select = values.parent.parent if isinstance(values.parent, exp.From) else None
        joins = None if select is None else select.args.get("joins")
        if joins and str(joins[0].args.get("side") or "").upper() in ("LEFT", "FULL"):
            with at(values):
                _values(values, statement)
    for select in list(statement.find_all(exp.Select)):
        if select.args.get("from_") is None and isinstance(select.parent, _WITHIN):
            scalar = isinstance(select.parent, exp.Subquery) and not isinstance(
                select.parent.parent, exp.From | exp.Join
            )
            if not scalar:
                with at(select):
                    select.set("from_", exp.From(this=_one(statement, "rows without a stream")))


def _series(table: exp.Table, statement: Node) -> None:
    """Replace the table functions ``generate_series(...)`` and ``range(...)`` in FROM."""
    made, alias = _sequence(table.this), table.args.get("alias")
    name = str(table.this.this).lower()
    given = "" if alias is None else alias.name
    columns = [] if alias is None else alias.args.get("columns") or []
    # generate_series(1, 9) AS n names the column n.
    own = given if given and name == "generate_series" else _SERIES[name]
    named = columns[0].name if columns else own
    join = table.parent
    plain = isinstance(join, exp.Join) and not (join.args.get("on") or join.args.get("using"))
    if plain or made.find(exp.Column) is not None:
        generator = exp.Lateral(
            this=call("explode", made),
            alias=exp.TableAlias(
                this=exp.to_identifier(given or _VIEW), columns=[exp.to_identifier(named)]
            ),
        )
        generator.meta.update(table.meta)
        table.replace(generator)
        return
    _put(table, call("explode", made), [named], given or name, statement)


def _values(values: exp.Values, statement: Node) -> None:
    alias = values.args.get("alias")
    rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
    given = [] if alias is None else [c.name for c in alias.args.get("columns") or []]
    names = given or [f"col{number}" for number in range(1, len(rows[0]) + 1)]
    if any(len(row) != len(names) for row in rows):
        raise unsupported("VALUES with rows of several lengths", "write a value for each column")
    structs = [
        call(
            "named_struct",
            *(
                part
                for name, value in zip(names, row, strict=True)
                for part in (exp.Literal.string(name), value.copy())
            ),
        )
        for row in rows
    ]
    title = "values" if alias is None or not alias.name else alias.name
    _put(values, call("inline", call("array", *structs)), names, title, statement)


def _put(table: Node, rows: Node, names: Sequence[str], alias: str, statement: Node) -> None:
    """Replace ``table`` by a query of the generated ``rows`` with the columns ``names``."""
    one = _one(statement, as_written(table.this) if isinstance(table, exp.Table) else "VALUES")
    select = exp.Select(expressions=[exp.column(name, quoted=True) for name in names])
    select.set("from_", exp.From(this=one))
    view = exp.TableAlias(
        this=exp.to_identifier(_VIEW),
        columns=[exp.to_identifier(name, quoted=True) for name in names],
    )
    select.set("laterals", [exp.Lateral(this=rows, view=True, alias=view)])
    made = exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(alias)))
    made.meta.update(table.meta)
    table.replace(made)


def _one(statement: Node, what: str) -> exp.Subquery:
    """A query that always has exactly one row; ``what``: the SQL construct, for errors."""
    known = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    streams = (
        table
        for table in statement.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and table.name.lower() not in known
    )
    stream = next(streams, None)
    if stream is None:
        raise unsupported(
            f"{what} in a statement that reads no stream", "register a table with these rows"
        )
    counted = exp.GTE(this=call("count", exp.Star()), expression=exp.Literal.number(0))
    select = exp.Select(expressions=[exp.alias_(counted, "one")])
    select.set("from_", exp.From(this=exp.Table(this=stream.this.copy())))
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(_ONE)))


def _sequence(node: exp.Anonymous) -> Node:
    """SQL array of the values of ``generate_series(a, b[, step])`` or ``range(a, b[, step])``."""
    first, last, step = [*node.expressions, None, None, None][:3]
    if first is None or len(node.expressions) > 3:
        raise unsupported(as_written(node), "write generate_series(1, 9)")
    if last is None:
        first, last = exp.Literal.number(0), first
    whole = str(node.this).lower() == "range"
    falling = isinstance(step, exp.Neg)
    end = last.copy()
    if whole:
        end = (exp.Add if falling else exp.Sub)(this=end, expression=exp.Literal.number(1))
    steps = [] if step is None else [step.copy()]
    made = call("sequence", first.copy(), end, *steps)
    numbers = [whole_number(one) for one in (first, last)]
    low, high = numbers
    if low is not None and high is not None and not falling and low <= high - whole:
        return made
    test = exp.GTE if falling else exp.LTE
    holds = test(this=first.copy(), expression=end.copy())
    return exp.Case(ifs=[exp.If(this=holds, true=made)])

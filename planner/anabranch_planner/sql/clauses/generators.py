"""Table functions that expand arrays and maps into rows: ``LATERAL VIEW``, ``LATERAL`` and
``UNNEST`` in FROM, ``explode(x)`` in the SELECT list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.aggregates import holds_aggregate, windows_in
from anabranch_planner.sql.translation.rules import SPARKS
from anabranch_planner.sql.unresolved import (
    GENERATORS,
    Node,
    RowGenerator,
    SelectItem,
    as_written,
    at,
    describe,
    unsupported,
)

#: Prefix of the generated aliases of table functions without an alias.
_ALIAS = "generated "


def is_generator(node: Node | None) -> TypeGuard[exp.Anonymous]:
    """Whether ``node`` calls a function that expands one row into several."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in GENERATORS


def generators_of(
    select: exp.Select, joins: Iterable[exp.Join]
) -> tuple[list[exp.Join], list[RowGenerator]]:
    """Split the joins of a SELECT: joins with tables, and table functions in FROM, both in order.

    Raises:
        QueryError: ``unsupported-sql``: another function, or a condition of a function's join.
    """
    tables, found = list[exp.Join](), list[RowGenerator]()
    for join in joins:
        made = join.this
        if isinstance(made, exp.Lateral | exp.Unnest) and not isinstance(made.this, exp.Query):
            with at(made):
                found.append(_of_join(join, len(found)))
        else:
            tables.append(join)
    for view in select.args.get("laterals") or ():
        with at(view):
            outer = bool(view.args.get("outer"))
            found.append(_generator(view.this, view.args.get("alias"), len(found), outer=outer))
    return tables, sorted(found, key=lambda one: sum(one.follows(other.call) for other in found))


def in_items(select: exp.Select, number: int) -> tuple[list[Node | SelectItem], list[RowGenerator]]:
    """Replace table functions in the SELECT list by columns; return the list and these functions.

    Args:
        number: number of table functions in FROM.

    Raises:
        QueryError: ``unsupported-sql``: a table function in a SELECT with groups, or a second one.
    """
    items, found = list[Node | SelectItem](), list[RowGenerator]()
    for node in select.expressions:
        call, names = node, tuple[str, ...]()
        if isinstance(node, exp.Alias | exp.Aliases):
            call = node.this
            named = node.expressions if isinstance(node, exp.Aliases) else [node.args["alias"]]
            names = tuple(name.name for name in named)
        if not is_generator(call):
            items.append(node)
            continue
        alias = f"{_ALIAS}{number + len(found) + 1}"
        outer = str(call.this).lower().endswith("_outer")
        found.append(RowGenerator(call, outer, alias, names, listed=True))
        with at(node):
            _check_alone(found, select)
        items.append(SelectItem(None, qualifier=alias))
    return items, found


def _check_alone(found: Sequence[RowGenerator], select: exp.Select) -> None:
    remedy = f"write LATERAL VIEW {found[-1]} t AS item after FROM"
    if len(found) > 1:
        raise unsupported(f"{found[-1]} as a second one", remedy)
    grouped = any(select.args.get(name) for name in ("group", "having", "qualify"))
    computed = any(holds_aggregate(n) or any(windows_in(n)) for n in select.expressions)
    if grouped or computed:
        raise unsupported(f"{found[-1]} in the SELECT list beside groups or windows", remedy)


def _of_join(join: exp.Join, number: int) -> RowGenerator:
    side, kind, method = (str(join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
    on = join.args.get("on")
    holds = on is None or (isinstance(on, exp.Boolean) and bool(on.this))
    if method or side not in ("", "LEFT") or kind not in ("", "CROSS", "INNER", "OUTER"):
        raise unsupported(
            f"a {' '.join(filter(None, (method, side, kind)))} JOIN with {describe(join.this)}",
            "write CROSS JOIN or LEFT JOIN ... ON TRUE",
        )
    if not holds or join.args.get("using"):
        with at(on):
            raise unsupported(
                f"a condition in the join with {describe(join.this)}", "write it into WHERE"
            )
    alias = join.this.args.get("alias")
    if isinstance(join.this, exp.Lateral):
        return _generator(join.this.this, alias, number, outer=side == "LEFT")
    values = join.this.expressions
    if len(values) != 1:
        raise unsupported("UNNEST of several values", "write posexplode of each, and compare pos")
    offset = join.this.args.get("offset")
    call = exp.Anonymous(this="explode", expressions=[values[0]])
    made = _generator(call, alias, number, outer=side == "LEFT")
    names = made.columns
    if not offset:
        return made
    if isinstance(offset, exp.Identifier) and names and offset.name not in names:
        names = (*names, offset.name)
    return RowGenerator(call, made.outer, made.alias, names, first=1)


def _generator(call: Node, alias: Node | None, number: int, *, outer: bool) -> RowGenerator:
    if _is_flatten(call):
        raise _flattened(call.expressions, alias)
    if not is_generator(call):
        raise unsupported(
            f"{describe(call)} in FROM", f"use one of {', '.join(sorted(GENERATORS))} there"
        )
    listed = None if alias is None else alias.args.get("columns")
    names = tuple(name.name for name in listed or ())
    named = "" if alias is None else alias.name
    outer = outer or str(call.this).lower().endswith("_outer")
    return RowGenerator(call, outer, named or f"{_ALIAS}{number + 1}", names)


def flattened(node: Node) -> QueryError | None:
    """The error for ``TABLE(FLATTEN(x))`` in FROM; None for another entry."""
    table = node.this if isinstance(node, exp.Table) else None
    call = table.expressions[0] if isinstance(table, exp.Anonymous) and table.expressions else None
    return _flattened(call.expressions, node.args.get("alias")) if _is_flatten(call) else None


def check_flattened(tree: Node, dialect: str) -> None:
    """Reject ``FLATTEN(...)`` in FROM of the statement ``tree`` in ``dialect``.

    Raises:
        QueryError: ``unsupported-sql``, with the equivalent function in Spark's dialect.
    """
    for call in tree.find_all(exp.Lateral, exp.TableFromRows):
        if dialect == "snowflake" and isinstance(call.this, exp.Explode):
            with at(call):
                raise _flattened([call.this.this], call.args.get("alias"), SPARKS + ": ")


def _is_flatten(node: Node | None) -> TypeGuard[exp.Anonymous]:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "flatten"


def _flattened(given: Sequence[Node], alias: Node | None, before: str = "write ") -> QueryError:
    """The remedy's error for Snowflake's ``FLATTEN`` in FROM, of an array or a VARIANT's part."""
    named = (
        one for one in given if isinstance(one, exp.Kwarg) and one.this.name.lower() == "input"
    )
    first = next(named, given[0] if given else None)
    value = first.expression if isinstance(first, exp.Kwarg) else first
    name = "f" if alias is None else alias.name or "f"
    text, is_part = "x" if value is None else as_written(value), False
    if isinstance(value, exp.JSONExtract):
        path = str(value.expression.sql("spark")).strip("'").removeprefix("$.")
        text, is_part = f"{as_written(value.this)}:{path}", True
    elif isinstance(value, exp.Anonymous) and str(value.this).lower() == "get_json_object":
        column, path = value.expressions
        text, is_part = f"{as_written(column)}:{path.name.removeprefix('$.')}", True
    remedy = f"LATERAL variant_explode({text}) AS {name}"
    if not is_part:
        remedy = f"LATERAL explode({text}) AS {name}(value) of an array, {remedy} of a VARIANT"
    return unsupported("FLATTEN", before + remedy)

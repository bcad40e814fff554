"""Joins with ``VALUES``, rewritten as CASE expressions.

``FROM o JOIN (VALUES (1, 'x'), (2, 'y')) AS v(k, name) ON v.k = o.k`` is read with ``CASE WHEN 1 =
o.k THEN 'x' WHEN 2 = o.k THEN 'y' END`` in place of ``v.name``, and with the condition ``o.k IN (1,
2)`` (not for a LEFT JOIN). So each row must have at most one match, i.e. the keys of VALUES have to
differ in every type in which they may be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from typing import Any

from sqlglot import exp

from anabranch_contract.queries.text_values import reader_of
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_planner.sql.unresolved import (
    COLUMN,
    Node,
    as_written,
    at,
    called,
    conjunction,
    operands,
    unsupported,
)

_READINGS = tuple(
    DataType(kind)
    for kind in (
        TypeKind.STRING, TypeKind.DOUBLE, TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.BOOLEAN,
    )
)  # fmt: skip
#: Kinds of joins that keep rows which violate a condition on earlier tables.
_KEEPING = ("RIGHT", "FULL")


_REMEDIES = {
    "SEMI": "write WHERE x IN (...) with the keys",
    "ANTI": "write WHERE NOT x IN (...) OR x IS NULL with the keys",
}


@dataclass(frozen=True, slots=True)
class _Values:
    """The rows of one ``VALUES`` in FROM, each as a mapping of column names in lower case.

    Attributes:
        merged: columns of USING; an unqualified name of such a column refers to the other table.
    """

    node: exp.Values
    alias: str
    names: tuple[str, ...]
    rows: tuple[dict[str, Node], ...]
    merged: frozenset[str] = frozenset()


def look_up_values(statement: Node) -> None:
    """Replace joins with ``VALUES`` in ``statement``.

    Raises:
        QueryError: ``unsupported-sql``: a VALUES that can't be used as a look-up table.
    """
    for select in list(statement.find_all(exp.Select)):
        while _replaced(select):
            pass


def _replaced(select: exp.Select) -> bool:
    """Replace the first ``VALUES`` in the FROM of ``select``; return whether there was one."""
    clause, joins = select.args.get("from_"), list(select.args.get("joins") or ())
    if clause is None:
        return False
    if isinstance(clause.this, exp.Values):
        with at(clause.this):
            found = _values(clause.this)
            alone = not joins or isinstance(joins[0].this, exp.Values)
            if alone or not _is_inner(joins[0]):
                raise unsupported(
                    f"{found.alias}, which is VALUES, as the first table of FROM",
                    "write FROM with a stream first, and JOIN (VALUES ...) after it",
                )
        # Exchange VALUES and the stream, so that the stream comes first.
        first, *others = joins
        _check_star(select, found)
        clause.set("this", first.this)
        join = exp.Join(this=found.node, on=first.args.get("on"), using=first.args.get("using"))
        select.set("joins", [join, *others])
        return _replaced(select)
    place = next((n for n, j in enumerate(joins) if isinstance(j.this, exp.Values)), None)
    if place is None:
        return False
    join = joins[place]
    using = frozenset(one.name.lower() for one in join.args.get("using") or ())
    with at(join.this):
        values = replace(_values(join.this), merged=using)
        _check_names(select, values)
        _replace(select, join, values, joins[place + 1 :])
    return True


def _check_names(select: exp.Select, values: _Values) -> None:
    """Reject a statement that uses a column name of ``values`` ambiguously."""
    if any(str(join.args.get("method") or "").upper() == "NATURAL" for join in _joins(select)):
        raise unsupported("VALUES beside a NATURAL JOIN", "write ON with the columns")
    for table in select.find_all(exp.Table, exp.Subquery, exp.Values):
        if table is not values.node and table.alias_or_name.lower() == values.alias.lower():
            raise unsupported(f"two tables named {values.alias}", "give each another name")
    aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
    for column in select.find_all(exp.Column):
        if not _names(column, values):
            continue
        own = column.find_ancestor(exp.Select) is select
        if not own and column.table:
            raise unsupported(
                f"{as_written(column)}, a column of VALUES, in a subquery",
                "write the JOIN with VALUES into the subquery",
            )
        later = column.find_ancestor(exp.Having, exp.Qualify) is not None
        if own and later and not column.table and column.name.lower() in aliases:
            raise unsupported(
                f"{column.name}, an alias and a column of VALUES",
                f"write {values.alias}.{column.name}",
            )


def _joins(select: exp.Select) -> list[exp.Join]:
    return list(select.args.get("joins") or ())


def _replace(
    select: exp.Select, join: exp.Join, values: _Values, after: Iterable[exp.Join]
) -> None:
    left = str(join.args.get("side") or "").upper() == "LEFT"
    if not (left or _is_inner(join)) or (left and join.args.get("kind")):
        word = str(
            join.args.get("kind") or join.args.get("side") or join.args.get("method")
        ).upper()
        remedy = _REMEDIES.get(word, "register a table of these rows, or write JOIN or LEFT JOIN")
        raise unsupported(f"{word} JOIN with VALUES {values.alias}", remedy)
    if not left and any(str(j.args.get("side") or "").upper() in _KEEPING for j in after):
        raise unsupported(
            "JOIN VALUES before a RIGHT or FULL JOIN", "write the JOIN with VALUES last"
        )
    _expand_stars(select, values)
    conditions = _conditions(select, join, values)
    keys = [key for key in (_key(node, values) for node in conditions) if key is not None]
    rows = [row for row in values.rows if not any(_is_null(row[name]) for name in keys)]
    if not keys or not _differ(rows, keys):
        named = " and ".join(f"{values.alias}.{key}" for key in keys)
        what = f"with several rows of equal {named}" if keys else "without an equality of a column"
        raise unsupported(
            f"a JOIN with VALUES {values.alias} {what}",
            f"leave one row for each key of {values.alias}, or register a table of these rows",
        )
    matches = [
        conjunction([_with_row(node.copy(), values, row) for node in conditions]) for row in rows
    ]
    join.pop()
    if not left:
        _add_condition(select, conditions, keys, matches, rows, values)
    _substitute(select, values, lambda name: _look_up(name, matches, rows))


def _values(node: exp.Values) -> _Values:
    """The rows of a ``VALUES``, which must consist of literals."""
    alias = node.args.get("alias")
    name = alias.name if alias is not None else ""
    tuples = [
        list(one.expressions) if isinstance(one, exp.Tuple) else [one] for one in node.expressions
    ]
    width = len(tuples[0]) if tuples else 0
    listed = () if alias is None else alias.args.get("columns") or ()
    names = tuple(column.name for column in listed)
    names = names or tuple(f"col{number}" for number in range(1, width + 1))
    lowered = tuple(one.lower() for one in names)
    if not name or not tuples or any(len(one) != len(names) for one in tuples):
        raise unsupported(
            "VALUES without a name, or with rows of different lengths",
            "write (VALUES (1, 'x'), (2, 'y')) AS v(k, name)",
        )
    if len(set(lowered)) < len(lowered):
        raise unsupported("VALUES with two columns of one name", "give each another name")
    for one in tuples:
        for value in one:
            if not _is_literal(value):
                raise unsupported(f"{as_written(value)} in VALUES", "write a literal")
    rows = tuple(dict(zip(lowered, one, strict=True)) for one in tuples)
    return _Values(node, name, lowered, rows)


def _is_literal(node: Node) -> bool:
    inner = node.this if isinstance(node, exp.Neg | exp.Cast | exp.Paren) else node
    return isinstance(inner, exp.Literal | exp.Boolean | exp.Null)


def _is_null(node: Node) -> bool:
    inner = node.this if isinstance(node, exp.Cast | exp.Paren) else node
    return isinstance(inner, exp.Null)


def _is_inner(join: exp.Join) -> bool:
    words = [str(join.args.get(name) or "").upper() for name in ("side", "method", "kind")]
    return words[:2] == ["", ""] and words[2] in ("", "INNER", "CROSS")


# --- conditions ----------------------------------------------------------------------------------


def _conditions(select: exp.Select, join: exp.Join, values: _Values) -> list[Node]:
    """The conjuncts of a join's condition; without ON, WHERE's conjuncts on VALUES's keys."""
    using = join.args.get("using") or ()
    if using:
        return [
            exp.EQ(this=exp.column(one.name, values.alias), expression=exp.column(one.name))
            for one in using
        ]
    on, where = join.args.get("on"), select.args.get("where")
    if on is not None:
        return operands(on, exp.And)
    if where is None:
        return []
    conjuncts = operands(where.this, exp.And)
    found = [node for node in conjuncts if _key(node, values) is not None]
    rest = [node for node in conjuncts if node not in found]
    select.set("where", exp.Where(this=conjunction(rest)) if rest else None)
    return found


def _key(node: Node, values: _Values) -> str | None:
    """The key column of ``values`` that ``node`` equates with other tables' columns, or None."""
    if not isinstance(node, exp.EQ):
        return None
    for side, other in ((node.this, node.expression), (node.expression, node.this)):
        if _names(side, values) and not any(_names(part, values) for part in other.walk()):
            return str(side.name).lower()
    return None


def _names(node: Node, values: _Values) -> bool:
    """Whether ``node`` is a column of ``values``, also if its name is unqualified."""
    if not isinstance(node, exp.Column) or node.name.lower() not in values.names:
        return False
    if node.table:
        return bool(node.table.lower() == values.alias.lower())
    return node.name.lower() not in values.merged


def _differ(rows: Iterable[dict[str, Node]], keys: list[str]) -> bool:
    """Whether the keys of all rows differ, read as numbers, as dates, as times and as texts."""
    known = [[_readings(row[name]) for name in keys] for row in rows]
    for reading in range(len(_READINGS)):
        read = [tuple(key[reading] for key in keys_) for keys_ in known]
        some = [key for key in read if None not in key]
        if len(set(some)) < len(some):
            return False
    return True


def _readings(node: Node) -> list[Any]:
    """A key of VALUES read as a text, double, date, time and boolean; None if that fails."""
    inner = node
    negative = False
    while isinstance(inner, exp.Neg | exp.Cast | exp.Paren):
        negative ^= isinstance(inner, exp.Neg)
        inner = inner.this
    text = ("-" if negative else "") + str(inner.this)
    found = list[Any]()
    for kind in _READINGS:
        try:
            value = reader_of(kind)(text)
        except (ValueError, OverflowError):
            value = float(Decimal(text)) if kind.kind is TypeKind.DOUBLE else None
        found.append(value)
    return found


def _with_row(node: Node, values: _Values, row: dict[str, Node]) -> Node:
    """``node`` with the values of ``row`` in place of columns of ``values``."""
    return node.transform(
        lambda part: row[part.name.lower()].copy() if _names(part, values) else part
    )


def _add_condition(
    select: exp.Select,
    conditions: list[Node],
    keys: list[str],
    matches: list[Node],
    rows: list[dict[str, Node]],
    values: _Values,
) -> None:
    """Add the condition to WHERE that keeps only rows with a partner in VALUES."""
    if not rows:
        condition: Node = exp.false()
    elif len(conditions) == 1:
        equal = conditions[0]
        other = equal.expression if _names(equal.this, values) else equal.this
        listed = [row[keys[0]].copy() for row in rows]
        condition = exp.In(this=other.copy(), expressions=listed)
    else:
        condition = reduce(lambda a, b: exp.Or(this=a, expression=b), [m.copy() for m in matches])
    where = select.args.get("where")
    parts = [exp.Paren(this=condition), *([] if where is None else [where.this])]
    select.set("where", exp.Where(this=conjunction(parts)))


# --- columns -------------------------------------------------------------------------------------


def _look_up(name: str, matches: list[Node], rows: list[dict[str, Node]]) -> Node:
    if not rows:
        return exp.Null()
    ifs = [
        exp.If(this=match.copy(), true=row[name].copy())
        for match, row in zip(matches, rows, strict=True)
    ]
    return exp.Case(ifs=ifs)


def _substitute(select: exp.Select, values: _Values, made: Callable[[str], Node]) -> None:
    """Replace the columns of a VALUES entry in ``select``."""
    aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
    for column in list(select.find_all(exp.Column)):
        if not _names(column, values) or column.find_ancestor(exp.Select) is not select:
            continue
        # In ORDER BY, an alias of the SELECT list takes precedence.
        ordered = column.find_ancestor(exp.Order) is select.args.get("order") is not None
        if ordered and not column.table and column.name.lower() in aliases:
            continue
        found = called(made(column.name.lower()), as_written(column))
        found.meta[COLUMN] = column.name
        if column.parent is select and column.arg_key == "expressions":
            found = exp.alias_(found, column.name, quoted=True)
        column.replace(found)


def _check_star(select: exp.Select, values: _Values) -> None:
    if any(isinstance(item, exp.Star) for item in select.expressions):
        raise unsupported(
            f"* with VALUES as the first table {values.alias}", "name the columns, or write it last"
        )


def _expand_stars(select: exp.Select, values: _Values) -> None:
    """Replace ``*`` by ``t.*`` for each table ``t``, and ``v.*`` of VALUES by its columns."""
    items = list[Node]()
    for item in select.expressions:
        if isinstance(item, exp.Star):
            tables = _tables(select)
            hiding = any(j.args.get("using") or j.kind in ("SEMI", "ANTI") for j in _joins(select))
            changed = item.args.get("except_") or item.args.get("replace")
            if hiding or None in tables or changed:
                raise unsupported("* beside VALUES", "name the columns")
            for name in tables:
                items += _columns(values) if name == values.alias else [_star(str(name))]
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            own = item.table.lower() == values.alias.lower()
            items += _columns(values) if own else [item]
        else:
            items.append(item)
    select.set("expressions", items)


def _tables(select: exp.Select) -> list[str | None]:
    entries = [select.args["from_"].this, *(j.this for j in select.args.get("joins") or ())]
    return [one.alias_or_name or None for one in entries]


def _star(table: str) -> Node:
    return exp.Column(this=exp.Star(), table=exp.to_identifier(table, quoted=True))


def _columns(values: _Values) -> list[Node]:
    return [exp.column(name, values.alias, quoted=True) for name in values.names]

"""DuckDB's results of TPC-DS queries, and comparison of rows with them.

Statements run in DuckDB unchanged, apart from these differences between Spark and DuckDB:

- NULL is the least value of ORDER BY (a setting of DuckDB's).
- An average or quotient of decimals is a decimal in Spark, rounded half up, and a double in DuckDB:
  the decimal must be the double up to half a unit of its last digit and a relative 1e-9.
- With LIMIT, any rows with the last value of ORDER BY are accepted as the last ones.

Doubles are compared up to a relative 1e-9, since their sums depend on the order of the rows;
everything else exactly, as bags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

_TIES = "ties_"
_RELATIVE = 1e-9
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
#: Query -> (text, replacement) pairs in DuckDB's statement. Query 66 adds quotients, which Spark
#: rounds to six digits each.
ADJUSTED: dict[int, tuple[tuple[str, str], ...]] = {
    66: tuple(
        (f"sum({month}_sales/w_warehouse_sq_ft)", f"sum(round({month}_sales/w_warehouse_sq_ft, 6))")
        for month in _MONTHS
    ),
}

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Difference of rows from DuckDB's result (None: equal), and the number of its rows."""

    difference: str | None
    rows: int


class Oracle:
    """DuckDB with the given ``tables``."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._duck = duckdb.connect(config={"threads": 1})
        self._duck.execute("SET TimeZone = 'UTC'")
        self._duck.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        for name, table in tables.items():
            self._duck.register("given", table)
            self._duck.execute(f"CREATE TABLE {name} AS FROM given")

    def compare(self, number: int, sql: str, found: Sequence[Row]) -> Verdict:
        """Compare the rows of a query with DuckDB's."""
        for old, new in ADJUSTED.get(number, ()):
            assert old in sql, f"query {number} has no {old!r}"
            sql = sql.replace(old, new)
        text, limit = with_ties(sql)
        rows = self._duck.execute(text).fetchall()
        if limit is None:
            return Verdict(_difference(list(found), rows, rows, len(rows)), len(rows))
        within = [row for row in rows if row[-1] <= limit]
        last = max((row[-1] for row in within), default=0)
        whole = len(within) <= limit
        sure = [row[:-1] for row in within if whole or row[-1] < last]
        within = [row[:-1] for row in within]
        count = min(limit, len(rows))
        return Verdict(_difference(list(found), sure, within, count), count)


def with_ties(sql: str) -> tuple[str, int | None]:
    """Return the statement without its LIMIT, with the rank of each row by ORDER BY as the last
    column; and the LIMIT (None: none).
    """
    tree = sqlglot.parse_one(sql, read="duckdb")
    assert isinstance(tree, exp.Query)
    limit, order = tree.args.get("limit"), tree.args.get("order")
    if limit is None:
        return sql, None
    count = int(limit.expression.name)
    tree.set("limit", None)
    tree.set("order", None)
    keys = [] if order is None else [one.copy() for one in order.expressions]
    added: list[str] = []
    plain = isinstance(tree, exp.Select) and not tree.args.get("distinct")
    named = {one.alias: one.this for one in tree.selects if isinstance(one, exp.Alias)}
    for key in keys:
        if isinstance(key.this, exp.Literal):
            # A sort key that is a column's position.
            key.set("this", exp.Var(this=f"#{key.this.name}"))
        elif plain:
            added.append(f"{_TIES}{len(added) + 1}")
            tree.append("expressions", exp.alias_(_meant(key.this, named), added[-1]))
            key.set("this", exp.column(added[-1]))
    for column in (column for key in keys for column in key.find_all(exp.Column)):
        column.set("table", None)
    star = exp.Star(except_=[exp.to_identifier(name) for name in added] or None)
    outer = exp.select(star).from_(exp.Subquery(this=tree, alias=exp.to_identifier("given")))
    if tree.args.get("with_") is not None:
        outer.set("with_", tree.args["with_"].pop())
    outer.append("expressions", exp.alias_(_rank(keys), _TIES))
    return outer.sql("duckdb"), count


def _meant(key: exp.Expr, named: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return a sort key in which aliases are replaced by their expressions."""

    def own(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name in named:
            return exp.paren(named[node.name].copy())
        return node

    made: exp.Expr = key.copy().transform(own)
    return made


def _rank(keys: Sequence[Any]) -> exp.Expr:
    if not keys:
        return exp.Literal.number(1)
    return exp.Window(this=exp.Anonymous(this="rank"), order=exp.Order(expressions=list(keys)))


def _difference(
    found: list[Row], sure: Sequence[Row], allowed: Sequence[Row], count: int
) -> str | None:
    """The first difference of ``found`` from ``count`` rows of ``allowed`` with all of ``sure``."""
    if len(found) != count:
        return f"{len(found)} rows instead of {count}"
    places = {i for row in allowed for i, v in enumerate(row) if isinstance(v, float)}
    extra = _without(found, allowed, places)
    if extra:
        near = _without(allowed, found, places)
        return f"{len(extra)} rows too much, e.g. {extra[0]}; missing e.g. {near[:1]}"
    missing = _without(sure, found, places)
    return f"{len(missing)} rows missing, e.g. {missing[0]}" if missing else None


def _without(rows: Sequence[Row], others: Sequence[Row], places: set[int]) -> list[Row]:
    """The rows without a counterpart in ``others``; each other row matches at most one row."""
    waiting: dict[tuple[Any, ...], list[Row]] = {}
    for row in others:
        waiting.setdefault(_exact(row, places), []).append(row)
    left = []
    for row in rows:
        same = waiting.get(_exact(row, places), [])
        at = next((i for i, other in enumerate(same) if _near(row, other, places)), None)
        if at is None:
            left.append(row)
        else:
            same.pop(at)
    return left


def _exact(row: Row, places: set[int]) -> tuple[Any, ...]:
    """Return the values of a row that are compared exactly."""
    return tuple(_plain(value) for i, value in enumerate(row) if i not in places)


def _plain(value: Any) -> Any:
    return value.normalize() + 0 if isinstance(value, Decimal) else value


def _near(one: Row, other: Row, places: set[int]) -> bool:
    return all(_is_near(one[i], other[i]) for i in places)


def _is_near(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    half = max(map(_half, (one, other)))
    return abs(float(one) - float(other)) <= half + _RELATIVE * abs(float(other))


def _half(value: Any) -> float:
    """Return half a unit of a decimal's last digit."""
    if not isinstance(value, Decimal):
        return 0.0
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return 0.5 * 10.0**exponent

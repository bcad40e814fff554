"""ASOF joins for DuckDB with the engine's choice among rows of equal times."""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp

_BACKWARD = {exp.GTE: True, exp.GT: True, exp.LTE: False, exp.LT: False}


def as_lateral(sql: str, ties: Sequence[str] = ()) -> str:
    """Return ``sql`` with its ASOF joins as lateral subqueries with ORDER BY and LIMIT 1.

    Args:
        ties: columns of right rows that decide between equal times.

    >>> as_lateral("SELECT 1 FROM a ASOF JOIN b ON b.k = a.k AND b.t <= a.t")[16:66]
    'JOIN LATERAL (SELECT * FROM b WHERE b.k = a.k AND '
    """
    tree = sqlglot.parse_one(sql, read="duckdb")
    found = tree.sql("duckdb")
    for join in tree.find_all(exp.Join):
        if join.args.get("method") != "ASOF":
            continue
        right, on = join.this.alias_or_name, join.args["on"]
        column, backward = next(
            _time(node, right)
            for kind in _BACKWARD
            for node in on.find_all(kind)
            if isinstance(node.this, exp.Column) and isinstance(node.expression, exp.Column)
        )
        order = "DESC NULLS LAST" if backward else "ASC NULLS FIRST"
        by = ", ".join(f"{right}.{name} {order}" for name in (column, *ties))
        made = (
            f"{join.side or ''} JOIN LATERAL (SELECT * FROM {join.this.sql('duckdb')} "
            f"WHERE {on.sql('duckdb')} ORDER BY {by} LIMIT 1) {right} ON true"
        )
        found = found.replace(join.sql("duckdb"), made.strip())
    return found


def _time(node: exp.Expr, right: str) -> tuple[str, bool]:
    """The right row's time in a comparison of times, and whether it is at most the left one's."""
    one, other = node.this, node.expression
    backward = next(before for kind, before in _BACKWARD.items() if isinstance(node, kind))
    return (one.name, not backward) if one.table == right else (other.name, backward)

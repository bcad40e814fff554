"""Conversion of a logical plan into Spark's SQL, to execute it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from anabranch_planner.logical.expression_text import quoted
from anabranch_planner.logical.nodes import (
    ANTI,
    CROSS,
    INNER,
    SEMI,
    Aggregate,
    Conjunct,
    Exchange,
    Filter,
    Join,
    Limit,
    MultiJoin,
    Node,
    Project,
    Scan,
    Sort,
    conjunction,
)
from benchmarks.papers.tsc.nodes import Distinct, Named, Query, SetOperation

_TOTAL = " OVER ()"
_RANKING = "() OVER ("


def to_sql(node: Node) -> str:
    """Return the statement whose logical plan is ``node``."""
    tail = ""
    if isinstance(node, Limit):
        tail = (f" LIMIT {node.count}" if node.count else "") + (
            f" OFFSET {node.offset}" if node.offset else ""
        )
        node = node.inputs[0]
    if isinstance(node, Sort):
        tail = f" ORDER BY {_filled(node, ', '.join(node.by))}{tail}"
        node = node.inputs[0]
    if isinstance(node, SetOperation):
        left, right = map(to_sql, node.inputs)
        return f"({left}) {node.kind} ({right}){tail}"
    distinct = isinstance(node, Distinct)
    if isinstance(node, Distinct):
        node = node.inputs[0]
    if not isinstance(node, Project):
        return f"SELECT * FROM {_from(node)}{tail}"
    items = ", ".join(f"{i.text} AS {quoted(i.name)}" if i.name else i.text for i in node.items)
    rows = [source for source in node.inputs if not isinstance(source, Query)]
    from_ = _rows(rows[0]) if rows else ""
    return f"SELECT {'DISTINCT ' if distinct else ''}{_filled(node, items)}{from_}{tail}"


def _rows(node: Node) -> str:
    """Return FROM, WHERE, GROUP BY and HAVING (QUALIFY for rankings and totals) of a node
    as SQL.
    """
    having = ""
    if isinstance(node, Filter) and any(_RANKING in c.text for c in node.conditions):
        having = f" QUALIFY {_all(node, node.conditions)}"
        node = _bare(node.inputs[0])
    if isinstance(node, Filter) and isinstance(node.inputs[0], Aggregate):
        totals = any(call.endswith(_TOTAL) for call in node.inputs[0].calls)
        having = f" {'QUALIFY' if totals else 'HAVING'} {_all(node, node.conditions)}"
        node = node.inputs[0]
    group = ""
    if isinstance(node, Aggregate):
        group = f" GROUP BY {', '.join(node.keys)}" if node.keys else ""
        node = _bare(node.inputs[0])
    where = ""
    if isinstance(node, Filter) and not isinstance(node.inputs[0], Scan | Named):
        where, node = f" WHERE {_all(node, node.conditions)}", node.inputs[0]
    return f" FROM {_from(node)}{where}{group}{having}"


def _from(node: Node, extra: str = "") -> str:
    """Return a node as an item of FROM.

    Args:
        extra: another condition of an inner join.
    """
    node = _bare(node)
    if isinstance(node, Scan):
        return f"{node.table} AS {quoted(node.alias)}"
    if isinstance(node, Named):
        return f"({to_sql(node.inputs[0])}) AS {node.alias}"
    if isinstance(node, Filter) and isinstance(node.inputs[0], Scan | Named):
        (alias,) = node.inputs[0].aliases
        where = _all(node, node.conditions)
        return f"(SELECT * FROM {_from(node.inputs[0])} WHERE {where}) AS {quoted(alias)}"
    if isinstance(node, Filter):
        return _from(node.inputs[0], _all(node, node.conditions))
    if not isinstance(node, Join | MultiJoin) or (extra and not _is_inner(node)):
        raise TypeError(node)
    conditions = node.conditions if isinstance(node, Join) else (*node.predicates, *node.residual)
    sides = [_side(source) for source in node.inputs if not isinstance(source, Query)]
    texts = [_all(node, conditions)] if conditions else []
    on = " AND ".join([*texts, *([extra] if extra else [])])
    kind = node.kind if isinstance(node, Join) else INNER
    if not on and kind in (INNER, CROSS):
        return " CROSS JOIN ".join(sides)
    kind = INNER if kind == CROSS else f"LEFT {kind}" if kind in (SEMI, ANTI) else kind
    *others, last = sides
    return f"{' CROSS JOIN '.join(others)} {kind.upper()} JOIN {last} ON {on or 'TRUE'}"


def _is_inner(node: Node) -> bool:
    return isinstance(node, MultiJoin) or (isinstance(node, Join) and node.kind in (INNER, CROSS))


def _side(node: Node) -> str:
    text, inner = _from(node), _bare(node)
    nested = isinstance(inner, Filter) and not isinstance(inner.inputs[0], Scan | Named)
    return f"({text})" if nested or isinstance(inner, Join | MultiJoin) else text


def _bare(node: Node) -> Node:
    return node.inputs[0] if isinstance(node, Exchange) else node


def _all(node: Node, conditions: Sequence[Conjunct]) -> str:
    return _filled(node, conjunction(tuple(conditions)))


def _filled(node: Node, text: str) -> str:
    """Return ``text`` with the queries of ``node`` in place of their marks."""
    queries = {q.mark: to_sql(q.inputs[0]) for q in node.inputs if isinstance(q, Query)}
    if not queries:
        return text
    return re.sub("|".join(queries), lambda found: queries[found[0]], text)

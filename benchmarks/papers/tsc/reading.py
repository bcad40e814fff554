"""Analysis of a qualified statement's syntax tree: tables, conjuncts, aggregates,
queries inside.
"""

from __future__ import annotations

from sqlglot import exp

#: Expressions that are NULL if their operand is NULL.
_NULL_KEEPING = (exp.Mul, exp.Add, exp.Sub, exp.Div, exp.Neg, exp.Paren, exp.Cast)
_DIALECT = "spark"


def only_value(comparison: exp.Expr) -> exp.Subquery | None:
    """Return the only query inside a comparison, if its NULL makes the comparison NULL;
    else None.
    """
    found = [q for q in queries_in(comparison) if isinstance(q, exp.Select)]
    if len(found) != 1 or len(queries_in(comparison)) != 1:
        return None
    scalar = found[0].parent
    above = scalar.parent if isinstance(scalar, exp.Subquery) else None
    while isinstance(above, _NULL_KEEPING):
        above = above.parent
    return scalar if isinstance(scalar, exp.Subquery) and above is comparison else None


def queries_in(node: exp.Expr) -> list[exp.Expr]:
    """Return the outermost queries inside an expression."""
    found: list[exp.Expr] = []
    pending = [node]
    while pending:
        current = pending.pop(0)
        if isinstance(current, exp.Query) and not isinstance(current, exp.Subquery):
            found.append(current)
        else:
            pending = [*current.iter_expressions(), *pending]
    return found


def tables_read(node: exp.Expr) -> set[str]:
    """Return the tables whose columns an expression reads."""
    return {column.table for column in node.find_all(exp.Column) if column.table}


def tables_outside(node: exp.Expr, own: set[str]) -> set[str]:
    """Return the tables that an expression reads beyond ``own`` and the tables of inner queries."""
    inside = {table for query in queries_in(node) for table in inner_tables(query)}
    return tables_read(node) - own - inside


def own_tables(select: exp.Select) -> set[str]:
    """Return the names of the tables and queries in the FROM of a SELECT."""
    sources = [select.args["from_"].this] if select.args.get("from_") else []
    sources += [join.this for join in select.args.get("joins") or ()]
    found = set()
    while sources:
        source = sources.pop()
        sources += [join.this for join in source.args.get("joins") or ()]
        if isinstance(source, exp.Subquery) and not source.alias:
            sources.append(source.this)
        elif source.alias_or_name:
            found.add(source.alias_or_name)
    return found


def inner_tables(query: exp.Expr) -> set[str]:
    """Return the names in the FROM of a query and of all queries inside it."""
    return {t for select in query.find_all(exp.Select) for t in own_tables(select)}


def is_plain(inner: exp.Select, *, aggregated: bool = False) -> bool:
    """Whether a query has only FROM, WHERE and items (aggregates only if ``aggregated``)."""
    others = ("group", "having", "distinct", "limit", "offset", "qualify", "windows")
    return not any(inner.args.get(part) for part in others) and (
        aggregated or not aggregates_of(inner)
    )


def aggregates_of(select: exp.Select) -> tuple[str, ...]:
    """Return the texts of the aggregates that a SELECT itself computes, sorted."""
    holders = [*select.expressions, select.args.get("having"), select.args.get("order")]
    found: dict[str, None] = {}
    for holder in holders:
        pending = [holder] if holder is not None else []
        while pending:
            node = pending.pop()
            if isinstance(node, exp.Query):
                continue
            if isinstance(node, exp.Window):
                # The aggregate of a window function, sum(sum(x)) OVER (...), is not one of the
                # group: only its arguments are.
                pending += [*node.this.iter_expressions(), *node.args.get("partition_by", ())]
                pending += [node.args["order"]] if node.args.get("order") else []
                continue
            if isinstance(node, exp.AggFunc):
                found[node.sql(_DIALECT)] = None
                continue
            pending += list(node.iter_expressions())
    return tuple(sorted(found))


def grouping_keys(group: exp.Group | None) -> tuple[str, ...]:
    """Return the keys of GROUP BY as texts, grouping sets as written."""
    if group is None:
        return ()
    sets = [
        e for part in ("grouping_sets", "cube", "rollup") for e in group.args.get(part) or () if e
    ]
    return tuple(e.sql(_DIALECT) for e in [*group.expressions, *sets])


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """Return the conjuncts of a condition, including factors common to all alternatives of
    an OR.
    """
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [c for part in node.flatten() for c in conjuncts(part)]
    if not isinstance(node, exp.Or):
        return [node]
    alternatives = [conjuncts(part) for part in node.flatten()]
    common = [c for c in alternatives[0] if all(c in other for other in alternatives[1:])]
    if not common:
        return [exp.paren(node)]
    rest = [[c for c in alternative if c not in common] for alternative in alternatives]
    if not all(rest):
        return common
    left = exp.or_(*(exp.and_(*(c.copy() for c in part)) for part in rest))
    return [*common, exp.paren(left)]

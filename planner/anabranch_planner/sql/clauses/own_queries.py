"""Clauses that require a subquery in FROM to be planned as a query of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.sql.aggregates import WINDOWED, function_over, holds_aggregate, windows_in
from anabranch_planner.sql.clauses.join_kinds import as_of, is_right, kind_of
from anabranch_planner.sql.unresolved import AGGREGATES, Node, RowGenerator

#: A clause of SQL: its name in messages, and its syntax node.
Clause = tuple[str, Node | None]
#: Results of :func:`kind_of` read as inner joins: INNER, and None (unsupported, rejected later).
INNER = (JoinKind.INNER, None)
#: Clauses that only a whole statement may have, with their names in messages about subqueries.
POST_JOIN = {
    "qualify": "QUALIFY",
    "distinct": "DISTINCT",
    "group": "GROUP BY",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
}


def own_clause(
    select: exp.Select, joins: Iterable[exp.Join], generators: Sequence[RowGenerator]
) -> Clause | None:
    """The first clause for which a subquery must be a query of its own; None if it has none.

    Args:
        joins, generators: the joins and table functions in the subquery's FROM.
    """
    return _post_join_clause(select) or _outer_join(joins) or clause_of(generators)


def clause_of(generators: Sequence[RowGenerator]) -> Clause | None:
    """The clause name and node of the first table function; None if there is none."""
    return (f"{generators[0].call.this}()", generators[0].call) if generators else None


def _post_join_clause(select: exp.Select) -> Clause | None:
    """Name and node of a subquery's first post-join clause or aggregate; None if there is none."""
    for name, what in POST_JOIN.items():
        part = select.args.get(name)
        # Without LIMIT the order of a subquery has no effect.
        if part and (name != "order" or select.args.get("limit")):
            return what, part
    for item in select.expressions:
        if holds_aggregate(item):
            return AGGREGATES, item
        for window in windows_in(item):
            if (name := function_over(window)) in WINDOWED:
                return f"{name}()", window
    return None


def _outer_join(joins: Iterable[exp.Join]) -> Clause | None:
    """Name and node of a subquery's first outer, semi, anti or ASOF join; None if there is none."""
    found = next((j for j in joins if is_right(j) or kind_of(j) not in INNER or as_of(j)), None)
    if found is None:
        return None
    return ("an ASOF JOIN" if as_of(found) else f"a {found.side or found.kind} JOIN"), found

"""Branches of a statement: copies of it in which one operand replaces each UNION ALL in FROM.

A join with a union is the union of the joins with its operands. So a statement over unions has one
branch per combination of operands, and each branch is an inner join without unions. Branches have
equal columns, named as in the first operand of each union, and cast to common types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import common_type
from anabranch_contract.queries.types import DataType
from anabranch_planner.binding.common_types import rounded
from anabranch_planner.sql.scope import ShownColumn
from anabranch_planner.sql.unresolved import HIDDEN, FromEntry, SelectItem, Unresolved, at, operands

#: Maximum number of branches of a statement.
MOST_BRANCHES = 32

Columns = Callable[[FromEntry], Sequence[ShownColumn]]


def branches_of(query: Unresolved, columns: Columns) -> tuple[Unresolved, ...]:
    """The branches of ``query``; only ``query`` itself if its FROM has no union.

    Args:
        columns: resolves an entry of FROM to its columns.

    Raises:
        QueryError: the operands of a union differ in number or types of columns, or there are too
            many branches.
    """
    for side in query.outer:
        if isinstance(side.source.of, Unresolved) and side.source.of.has_union:
            with at(side.source.node):
                raise _refused_beside(side.kind)
    if query.outer and query.has_union:
        with at(query.outer[0].source.node):
            raise _refused_beside(query.outer[0].kind)
    return _expanded(query, columns)


def _refused_beside(kind: str) -> QueryError:
    return QueryError(
        "unsupported-sql",
        f"UNION ALL in the FROM of a {kind.upper()} JOIN is not supported",
        remedy="write the join into each operand, or register the union with GROUP BY as a query",
    )


def _expanded(query: Unresolved, columns: Columns) -> tuple[Unresolved, ...]:
    if not query.has_union:
        return (query,)
    ways = [_possible(query, source, tuple(_ways(source, columns))) for source in query.sources]
    count = prod(map(len, ways))
    if count > MOST_BRANCHES:
        with at(query.sources[0].node):
            raise QueryError(
                "too-many-branches",
                f"the statement has {count} combinations of operands of UNION ALL",
                remedy=f"join {MOST_BRANCHES} combinations at most: register several queries",
            )
    return tuple(replace(query, sources=some) for some in product(*ways))


def _possible(
    query: Unresolved, source: FromEntry, ways: tuple[FromEntry, ...]
) -> tuple[FromEntry, ...]:
    """The operands ``ways`` of an entry of FROM that may have rows. If a column of an operand is a
    constant, and a condition requires a different constant, a branch with this operand has no rows.
    At least one operand is returned."""
    if len(ways) < 2 or not source.alias:
        return ways
    wanted = dict(_constants(query, source.alias))
    kept = tuple(way for way in ways if not _differs(way, wanted))
    return kept or ways[:1]


def _constants(query: Unresolved, alias: str) -> Iterator[tuple[str, exp.Literal]]:
    """The columns ``alias.column`` that conditions of ``query`` compare with a literal by ``=``."""
    for condition in query.conditions:
        for part in operands(condition.node, exp.And):
            if not isinstance(part, exp.EQ):
                continue
            for one, other in ((part.this, part.expression), (part.expression, part.this)):
                own = isinstance(one, exp.Column) and one.table.lower() == alias.lower()
                if own and isinstance(other, exp.Literal):
                    yield one.name.lower(), other


def _differs(way: FromEntry, wanted: Mapping[str, exp.Literal]) -> bool:
    """Whether a column of a union's operand ``way`` is a text constant not equal to ``wanted``."""
    items = way.of.items if isinstance(way.of, Unresolved) else ()
    names = way.columns
    if len(names) != len(items):
        return False
    for name, item in zip(names, items, strict=True):
        literal, node = wanted.get(name.lower()), item.node
        if literal is None or not isinstance(node, exp.Literal):
            continue
        if literal.is_string and node.is_string and node.this != literal.this:
            return True
    return False


def _ways(source: FromEntry, columns: Columns) -> Iterator[FromEntry]:
    """Copies of the entry ``source`` with one operand in place of each union inside it."""
    if isinstance(source.of, str):
        yield source
    elif source.of.branches:
        found = [way for one in source.of.branches for way in _expanded(_query_of(one), columns)]
        shown = [columns(FromEntry(way, "", node=source.node)) for way in found]
        types = _common_types(found, shown)
        names = source.columns or tuple(column.name for column in shown[0])
        for way in found:
            yield replace(source, of=way, columns=names, types=types)
    else:
        for inner in _expanded(source.of, columns):
            yield source if inner is source.of else replace(source, of=inner)


def _query_of(branch: FromEntry) -> Unresolved:
    if isinstance(branch.of, Unresolved) and not branch.of.branches:
        return branch.of
    return Unresolved((branch,), (), (SelectItem(None),))


def _common_types(
    operands: Sequence[Unresolved], shown: Sequence[Sequence[ShownColumn]]
) -> tuple[DataType, ...]:
    """The common type of each column of a union; ``shown`` has the columns of each operand."""
    first, types = shown[0], [column.expr.type for column in shown[0]]
    for number, (operand, others) in enumerate(zip(operands, shown, strict=True), 1):
        counts = [sum(not c.name.startswith(HIDDEN) for c in some) for some in (first, others)]
        if counts[0] != counts[1]:
            with _place(operand, 0):
                raise QueryError(
                    "different-columns",
                    f"the first SELECT of the set operation has {_columns(counts[0])}, the "
                    f"{_ordinal(number)} has {counts[1]}",
                    remedy="select the same columns in all of them, in the same order",
                )
        for place, column in enumerate(others):
            pair = types[place], column.expr.type
            found = common_type(*pair) or rounded(*pair)
            if found is None:
                with _place(operand, place):
                    raise QueryError(
                        "type-mismatch",
                        f"column {first[place].name!r} of the set operation is of type "
                        f"{types[place]}, and {column.expr.type} in the {_ordinal(number)} SELECT",
                        remedy="cast one of the two columns",
                    )
            types[place] = found
    return tuple(types)


def _place(operand: Unresolved, column: int) -> contextlib.AbstractContextManager[None]:
    """Attach the position in the SQL of a column of the union's ``operand`` to errors."""
    inside = operand.sources[0].of if len(operand.sources) == 1 else None
    if isinstance(inside, Unresolved) and operand.items and operand.items[0].node is None:
        # The operand was wrapped in a query that marks its rows (INTERSECT, EXCEPT): look inside.
        return _place(inside, column)
    items = [item.node for item in operand.items]
    starred = None in items
    sources = [source.node for source in operand.sources]
    node = None if starred or column >= len(items) else items[column]
    return at(node or next(iter(sources), None))


def _columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")

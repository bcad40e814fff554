"""Output columns of SELECT lists; columns for a sink need writable types and distinct names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Call, Column, Expr, size, terms
from anabranch_contract.queries.types import INTERVALS, NESTED, TypeKind
from anabranch_planner.binding.naming import spark_name
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope, ShownColumn, nearest
from anabranch_planner.sql.unresolved import Node, SelectItem, at, called, describe, located

#: Maximum number of nodes of an output expression after subqueries in FROM have been inlined.
LARGEST = 10_000
MOST_COLUMNS = 5_000


def columns_of(items: Iterable[SelectItem], scope: Scope) -> Iterator[ShownColumn]:
    """The columns of a SELECT list.

    Raises:
        QueryError: a column has no name, or its expression is too large.
    """
    for item in lateral(items, scope):
        with located(item.field), at(item.node):
            if item.node is None:
                yield from starred(item, scope)
                continue
            expr = typed(item.node, scope)
            named = item.name is not None
            shown = item.name if named else _spark_name(item.node, expr, scope)
            if not shown:
                raise QueryError(
                    "unnamed-output",
                    f"{describe(item.node)} has no name",
                    remedy="give it a name with AS",
                )
            if size(expr, LARGEST) > LARGEST:
                raise QueryError(
                    "too-large",
                    f"{shown!r} is an expression of more than {LARGEST} terms once subqueries"
                    " are written out",
                    remedy="compute it where the results are read",
                )
            yield ShownColumn(shown, expr)


def _spark_name(node: Node, expr: Expr, scope: Scope) -> str | None:
    """Spark's name of a SELECT item; a date plus or minus days is named as a function."""
    timed = node.find(exp.Interval) or any(term.type.kind in INTERVALS for term in terms(expr))
    name = spark_name(node, (lambda part: typed(part, scope).type) if timed else None)
    moved = isinstance(expr, Call) and expr.op == "date_add" and isinstance(node, exp.Add | exp.Sub)
    if name is None or not moved:
        return name
    inside = name[1:-1].replace(" + " if isinstance(node, exp.Add) else " - ", ", ")
    return f"date_{'add' if isinstance(node, exp.Add) else 'sub'}({inside})"


def written(items: Iterable[SelectItem], scope: Scope) -> tuple[tuple[str, Expr], ...]:
    """The columns of a SELECT list whose results are written to a sink.

    Raises:
        QueryError: as :func:`columns_of`; or a type can't be written, or a name occurs twice.
    """
    outputs: dict[str, tuple[str, Expr]] = {}
    names = OutputNames(outputs)
    for item in lateral(items, scope):
        with located(item.field), at(item.node):
            for shown in columns_of((item,), scope):
                require_writable(shown.name, shown.expr)
                name = shown.name
                if item.name is None:
                    name = names.distinct(name, owner_of(shown.expr))
                require_new(name, outputs, shown.expr)
                outputs[name.lower()] = (name, shown.expr)
    return tuple(outputs.values())


def starred(item: SelectItem, scope: Scope) -> Iterator[ShownColumn]:
    """The columns of ``*`` or ``alias.*``, with its EXCEPT and REPLACE.

    Raises:
        QueryError: ``unknown-column``: EXCEPT or REPLACE names a column that is not among them.
    """
    with at(item.star):
        columns = scope.table(item.qualifier).columns if item.qualifier else scope.visible
    there = {column.name.lower() for column in columns}
    replaced = {one.name.lower(): one for one in item.replaced if one.name is not None}
    for name in (*item.without, *replaced):
        if name.lower() not in there:
            named = [] if item.star is None else item.star.find_all(exp.Identifier)
            with at(next((one for one in named if one.name.lower() == name.lower()), None)):
                raise QueryError(
                    "unknown-column",
                    f"* has no column {name!r}",
                    remedy=nearest(name, (column.name for column in columns)),
                )
    for column in columns:
        name = column.name.lower()
        if name in item.without:
            continue
        found = replaced.get(name)
        if found is not None and found.node is not None:
            yield ShownColumn(column.name, typed(found.node, scope))
        else:
            yield column


def lateral(items: Iterable[SelectItem], scope: Scope) -> Iterator[SelectItem]:
    """The items of a SELECT list, in which aliases of earlier items (lateral column aliases) are
    replaced by their expressions. As in Spark, a column of FROM precedes an alias of the same name.
    """
    known: dict[str, Node] = {}
    columns = {column.name.lower() for column in scope.visible}

    def read(node: Node) -> list[exp.Column]:
        """The columns of an item, outside of subqueries, that refer to aliases of earlier items."""
        parts = node.walk(prune=lambda part: isinstance(part, exp.Query))
        named = (part for part in parts if isinstance(part, exp.Column) and not part.table)
        return [one for one in named if one.name.lower() in known.keys() - columns]

    for item in items:
        made = item
        if item.node is not None and read(item.node):
            inside = exp.Paren(this=item.node.copy())
            for one in read(inside):
                one.replace(exp.Paren(this=called(known[one.name.lower()].copy(), one.name)))
            made = replace(item, node=inside.this)
        if made.node is not None and made.name is not None:
            known[made.name.lower()] = made.node
        yield made


def owner_of(expr: Expr) -> str:
    """The alias of the stream whose column ``expr`` is; empty for other expressions."""
    return expr.alias if isinstance(expr, Column) and not expr.alias.startswith("#") else ""


def _require_room(taken: Collection[str]) -> None:
    if len(taken) >= MOST_COLUMNS:
        raise QueryError(
            "too-many-columns",
            f"SELECT has more than {MOST_COLUMNS} columns",
            remedy=f"write {MOST_COLUMNS} at most",
        )


@dataclass(frozen=True, slots=True)
class OutputNames:
    """Names for output columns without AS.

    Attributes:
        taken: names in use, in lower case; the caller adds to them.
    """

    taken: Collection[str]
    _numbers: dict[str, int] = field(default_factory=dict)

    def distinct(self, name: str, qualifier: str) -> str:
        """A name that is not taken: ``name`` itself, or with the alias ``qualifier`` before it.

        >>> names = OutputNames({"id"})
        >>> names.distinct("id", "o"), OutputNames({"id", "o_id"}).distinct("id", "o")
        ('o_id', 'o_id_2')

        Raises:
            QueryError: ``too-many-columns``.
        """
        _require_room(self.taken)
        if name.lower() not in self.taken:
            return name
        stem = f"{qualifier.replace('.', '_')}_{name}" if qualifier else name
        if qualifier and stem.lower() not in self.taken:
            return stem
        number = self._numbers.get(stem, 2)
        while f"{stem}_{number}".lower() in self.taken:
            number += 1
        self._numbers[stem] = number
        return f"{stem}_{number}"


def require_writable(name: str, expr: Expr) -> None:
    """Reject an output column of a type that sinks cannot store.

    Raises:
        QueryError: ``unsupported-output``.
    """
    remedy = "cast it to the type that you want"
    kinds = {"intervals": INTERVALS, "variants": (TypeKind.VARIANT,)}
    inside = [n for n, k in kinds.items() if expr.type.kind in NESTED and expr.type.has(*k)]
    if inside:
        remedy = f"cast the {' and '.join(inside)} inside to STRING"
    if inside or expr.type.has(TypeKind.NULL):
        raise QueryError(
            "unsupported-output",
            f"{name!r} is of type {expr.type}, which can't be written",
            remedy=remedy,
        )


def require_new(name: str, taken: Collection[str], expr: Expr) -> None:
    """Reject an output column whose name is in ``taken`` (lower case), or one column too many.

    Raises:
        QueryError: ``duplicate-name``, ``too-many-columns``.
    """
    _require_room(taken)
    if name.lower() in taken:
        raise QueryError(
            "duplicate-name",
            f"two output columns are called {name!r}",
            remedy=f"rename one: {expr} AS other_name",
        )

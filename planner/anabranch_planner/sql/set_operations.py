"""Set operations: UNION ALL as the branches of one source, the others as groups over them.

``A UNION ALL B`` is an :class:`Unresolved` with two branches. Every other set operation compares
whole rows, so it is a GROUP BY of all columns over the rows of all operands, however they are
nested: ``A UNION (B INTERSECT C)`` has the groups with a row of A, or with rows of B and of C.
Beneath an operation without ALL, only the presence of a row matters, so UNION ALL is UNION there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from anabranch_planner.sql.unresolved import (
    HIDDEN,
    FromEntry,
    Node,
    PostJoin,
    SelectItem,
    Unresolved,
    at,
    unsupported,
)

#: Column with the number of a row's operand.
_OPERAND = f"{HIDDEN}operand"
_COUNT_BOTH = "count the rows of each side: GROUP BY all columns over their UNION ALL"


def set_operation(
    node: exp.SetOperation,
    read: Callable[[Node], Unresolved],
    clauses: PostJoin | None,
    *,
    whole: bool,
) -> Unresolved:
    """Read a set operation.

    Args:
        read: parses an operand.
        clauses: ORDER BY, LIMIT and OFFSET after it; None: it has none of them.
        whole: whether it is a whole statement, not a subquery.

    Raises:
        QueryError: ``unsupported-sql``, naming the operation.
    """
    name = name_of(node)
    if _keeps_all(node):
        branches = tuple(entry for side in _sides(node) for entry in _branches(side, read))
        if clauses is None and not whole:
            return Unresolved((), (), (), branches=branches)
        found = Unresolved((_source(branches),), (), (SelectItem(None),), clauses)
    else:
        rows = _Rows(read)
        present = rows.present(node)
        clauses = clauses or PostJoin()
        plain = all(isinstance(one, exp.Union) for one in rows.operations)
        found = Unresolved(
            (_source(tuple(rows.branches) if plain else rows.numbered()),),
            (),
            (SelectItem(None),),
            PostJoin(
                group=(),
                group_all=True,
                having=None if plain else present,
                order=clauses.order,
                limit=clauses.limit,
                offset=clauses.offset,
                ctes=clauses.ctes,
            ),
        )
    if whole:
        return found
    return Unresolved(found.sources, (), found.items, found.post_join, nested=(name, node))


def name_of(node: exp.SetOperation) -> str:
    """Name of a set operation: ``UNION ALL``, ``EXCEPT``."""
    every = "" if node.args.get("distinct") else " ALL"
    return f"{type(node).__name__.upper()}{every}"


def _keeps_all(node: exp.SetOperation) -> bool:
    """Whether it is UNION ALL.

    Raises:
        QueryError: ``unsupported-sql``: it is INTERSECT ALL or EXCEPT ALL.
    """
    every = not node.args.get("distinct")
    if every and not isinstance(node, exp.Union):
        remedy = f"write {type(node).__name__.upper()}, or {_COUNT_BOTH}"
        with at(node):
            raise unsupported(name_of(node), remedy)
    return every


def _source(branches: tuple[FromEntry, ...]) -> FromEntry:
    return FromEntry(Unresolved((), (), (), branches=branches), "")


def _sides(node: exp.SetOperation) -> list[Node]:
    """The operands of UNION ALL, from left to right, without those that are UNION ALL themselves
    on the left.
    """
    found: list[Node] = [node.expression]
    left: Node = node.this
    while _is_bare(left) and _keeps_all(left):
        found.append(left.expression)
        left = left.this
    return [left, *reversed(found)]


def _branches(side: Node, read: Callable[[Node], Unresolved]) -> tuple[FromEntry, ...]:
    found = read(side)
    return found.branches or (FromEntry(found, "", node=side),)


def _is_bare(node: Node) -> bool:
    """Whether ``node`` is a set operation without clauses of its own."""
    return isinstance(node, exp.SetOperation) and not any(
        node.args.get(name) for name in ("with_", "order", "limit", "offset")
    )


@dataclass(slots=True)
class _Rows:
    """The rows of all operands beneath a set operation without ALL."""

    read: Callable[[Node], Unresolved]
    branches: list[FromEntry] = field(default_factory=list)
    operations: list[exp.SetOperation] = field(default_factory=list)
    #: Number of the operand, from 1, of each branch.
    _operands: list[int] = field(default_factory=list)

    def present(self, node: Node) -> Node:
        """The condition on a group whose row is in the result of ``node``."""
        inside = node
        while isinstance(inside, exp.Subquery) and not any(
            value for name, value in inside.args.items() if name != "this"
        ):
            inside = inside.this
        known = inside if inside is node or _is_bare(inside) else None
        if not isinstance(known, exp.SetOperation):
            number = 1 + max(self._operands, default=0)
            found = _branches(node, self.read)
            self.branches += found
            self._operands += [number] * len(found)
            return _holds_row_of(number)
        _keeps_all(known)
        self.operations.append(known)
        left, right = self.present(known.this), self.present(known.expression)
        if isinstance(known, exp.Union):
            return exp.Paren(this=exp.Or(this=left, expression=right))
        if isinstance(known, exp.Except):
            right = exp.Not(this=right)
        return exp.Paren(this=exp.And(this=left, expression=right))

    def numbered(self) -> tuple[FromEntry, ...]:
        """The branches with the number of the operand as last column."""
        return tuple(
            FromEntry(
                Unresolved(
                    (branch,),
                    (),
                    (
                        SelectItem(None),
                        SelectItem(exp.Literal.number(number), _OPERAND),
                    ),
                ),
                "",
                node=branch.node,
            )
            for branch, number in zip(self.branches, self._operands, strict=True)
        )


def _holds_row_of(number: int) -> Node:
    """``count(CASE WHEN operand = number THEN 1 END) > 0``."""
    column = exp.Column(this=exp.Identifier(this=_OPERAND, quoted=True))
    own = exp.EQ(this=column, expression=exp.Literal.number(number))
    one = exp.Case(ifs=[exp.If(this=own, true=exp.Literal.number(1))])
    count = exp.Anonymous(this="count", expressions=[one])
    return exp.Paren(this=exp.GT(this=count, expression=exp.Literal.number(0)))

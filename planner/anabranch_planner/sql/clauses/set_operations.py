"""Set operations: UNION ALL is a source with several branches; all others become GROUP BY over
UNION ALL.

``A UNION ALL B`` is an :class:`Unresolved` with two branches. Every other set operation, nested or
not, is a GROUP BY of all columns over the rows of all operands, because it compares whole rows: the
result of ``A UNION (B INTERSECT C)`` consists of the groups that have a row of A, or a row of B and
a row of C. For INTERSECT ALL and EXCEPT ALL the numbers of a group's rows in each operand determine
how often the group's row is emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce

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

_Read = Callable[[Node], Unresolved]
_CLAUSES = {"with_": "WITH", "order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET"}


def set_operation(
    node: exp.SetOperation, read: _Read, clauses: PostJoin | None, *, whole: bool
) -> Unresolved:
    """Read a set operation into a query.

    Args:
        read: parses an operand.
        clauses: ORDER BY, LIMIT and OFFSET after the set operation; None if it has none of them.
        whole: whether the set operation is a whole statement, not a subquery.

    Raises:
        QueryError: ``unsupported-sql``: an operand with such a clause has no parentheses.
    """
    nested = None if whole else (name_of(node), node)
    if _keeps_all(node):
        branches = tuple(entry for side in _sides(node) for entry in _branches(side, read))
        sorts = clauses is not None and clauses.limit is None and clauses.offset is None
        if not whole and (clauses is None or sorts):
            return Unresolved((), (), (), branches=branches)
        return _over(_source(branches), clauses, nested)
    groups = _SetGroups(read)
    found = groups.of(node)
    if clauses is None:
        return replace(found, nested=nested)
    if clauses.limit is not None and groups.copies:
        # LIMIT counts result rows, but one group may produce several.
        inner = replace(found, nested=(name_of(node), node))
        return _over(FromEntry(inner, "", node=node), clauses, nested)
    own = replace(clauses, group=(), group_all=True, having=groups.having, copies=groups.copies)
    return replace(found, post_join=own, nested=nested)


def as_table(rows: Unresolved, node: Node | None, called: str = "UNION ALL") -> Unresolved:
    """A query that maintains the rows of a union or an expansion as a table: it groups ``rows`` by
    all columns, and emits each group's row as often as the group has rows."""
    count = exp.Anonymous(this="count", expressions=[exp.Star()])
    every = PostJoin(group=(), group_all=True, copies=count)
    return _over(FromEntry(rows, "", node=node), every, (called, node))


def as_values(node: exp.Query, query: Unresolved) -> Unresolved:
    """``query``, a set operation as subquery of an expression, with its columns renamed to value1,
    value2 etc.; any other ``query`` unchanged.

    Raises:
        QueryError: ``unsupported-sql``: its first operand has ``*``.
    """
    body = node.unnest()
    if not isinstance(body, exp.SetOperation):
        return query
    for shown in body.selects:
        if shown.is_star:
            with at(shown):
                raise unsupported(
                    f"* in {name_of(body)} in an expression", "name the columns of its operands"
                )
    names = tuple(f"value{n}" for n in range(1, 1 + len(body.selects)))
    entry = FromEntry(query, "operands", columns=names, node=node)
    return Unresolved((entry,), (), tuple(SelectItem(exp.column(name)) for name in names))


def clauses_after(node: exp.SetOperation) -> exp.Select:
    """``SELECT *`` with the clauses that follow a set operation (ORDER BY, LIMIT, OFFSET)."""
    found = exp.Select(expressions=[exp.Star()])
    for name in _CLAUSES:
        if name != "with_":
            found.args[name] = node.args.get(name)
    return found


def name_of(node: exp.SetOperation) -> str:
    """Name of a set operation: ``UNION ALL``, ``EXCEPT``."""
    return f"{type(node).__name__.upper()}{'' if node.args.get('distinct') else ' ALL'}"


def _keeps_all(node: Node) -> bool:
    """Whether ``node`` is UNION ALL, which removes no duplicates."""
    return isinstance(node, exp.Union) and not node.args.get("distinct")


def _over(
    source: FromEntry, clauses: PostJoin | None, nested: tuple[str, Node | None] | None
) -> Unresolved:
    return Unresolved((source,), (), (SelectItem(None),), clauses, nested=nested)


def _source(branches: tuple[FromEntry, ...]) -> FromEntry:
    return FromEntry(Unresolved((), (), (), branches=branches), "", node=branches[0].node)


def _sides(node: exp.SetOperation) -> list[Node]:
    """Operands of UNION ALL from left to right, nested UNION ALLs on the left included."""
    found: list[Node] = [node.expression]
    left: Node = node.this
    while _is_bare(left) and _keeps_all(left):
        found.append(left.expression)
        left = left.this
    return [left, *reversed(found)]


def _branches(side: Node, read: _Read) -> tuple[FromEntry, ...]:
    for name, clause in _CLAUSES.items():
        part = side.args.get(name)
        if part and isinstance(side, exp.Query) and not isinstance(side, exp.Subquery):
            with at(part):
                raise unsupported(
                    f"{clause} in an operand of a set operation",
                    "put the operand in parentheses, or the clause at the end",
                )
    found = read(side)
    return found.branches or (FromEntry(found, "", node=side),)


def _is_bare(node: Node) -> bool:
    """Whether ``node`` is a set operation without ORDER BY, LIMIT and other clauses of its own."""
    return isinstance(node, exp.SetOperation) and not any(node.args.get(name) for name in _CLAUSES)


def _inside(node: Node) -> Node:
    """The set operation in the parentheses ``node``; ``node`` itself if there is none."""
    inside = node
    while isinstance(inside, exp.Subquery) and not any(
        value for name, value in inside.args.items() if name != "this"
    ):
        inside = inside.this
    return inside if _is_bare(inside) else node


@dataclass(slots=True)
class _SetGroups:
    """Set operation other than UNION ALL, as a GROUP BY of all columns over all operands' rows.

    Attributes:
        having: condition that the groups in the result satisfy.
        copies: number of times that a group's row is in the result; None: once.
    """

    read: _Read
    having: Node | None = None
    copies: Node | None = None
    _branches: list[FromEntry] = field(default_factory=list)
    #: Number (from 1) of the operand to which each branch belongs.
    _operands: list[int] = field(default_factory=list)

    def of(self, node: exp.SetOperation) -> Unresolved:
        """The grouped query with the rows of ``node``; sets ``having`` and ``copies``."""
        if node.args.get("distinct"):
            self.having = self._is_in(node)
        elif isinstance(node, exp.Except):
            left, right = self._difference(node)
            self.having = exp.GT(this=left, expression=right)
            self.copies = exp.Sub(this=left.copy(), expression=right.copy())
        else:
            left, right = self._copies(node.this), self._copies(node.expression)
            self.having = exp.And(this=_any(left), expression=_any(right))
            less = exp.LT(this=left.copy(), expression=right.copy())
            self.copies = _case(less, left.copy(), right.copy())
        if max(self._operands) == 1:
            # If there is only one operand, every group is in the result.
            self.having, branches = None, tuple(self._branches)
        else:
            branches = tuple(map(self._marked, self._branches, self._operands))
        every = PostJoin(group=(), group_all=True, having=self.having, copies=self.copies)
        return _over(_source(branches), every, None)

    def _is_in(self, node: Node) -> Node:
        """Condition on groups: the group's row is in the result of ``node``."""
        known = _inside(node)
        if isinstance(known, exp.Union):
            return self._of_union(known, self._is_in, exp.Or, every=False)
        if isinstance(known, exp.Except) and not known.args.get("distinct"):
            left, right = self._difference(known)
            return exp.Paren(this=exp.GT(this=left, expression=right))
        if isinstance(known, exp.Intersect | exp.Except):
            left, right = self._is_in(known.this), self._is_in(known.expression)
            if isinstance(known, exp.Except):
                right = exp.Not(this=right)
            return exp.Paren(this=exp.And(this=left, expression=right))
        return _any(self._count(node, self._next()))

    def _difference(self, node: Node) -> tuple[Node, Node]:
        """Numbers of a group's rows in the left and right operand of EXCEPT ALL; in a chain, the
        numbers of all right operands are added up."""
        rights, left = list[Node](), node
        while isinstance(known := _inside(left), exp.Except) and not known.args.get("distinct"):
            rights.append(known.expression)
            left = known.this
        minuend, *others = self._copies(left), *map(self._copies, reversed(rights))
        right = reduce(lambda a, b: exp.Add(this=a, expression=b), others)
        return minuend, exp.Paren(this=right)

    def _copies(self, node: Node) -> Node:
        """Expression for the number of times that a group's row is in the result of ``node``."""
        known = _inside(node)
        if _keeps_all(known):
            return self._of_union(known, self._copies, exp.Add, every=True)
        if isinstance(known, exp.SetOperation) and known.args.get("distinct"):
            one, none = exp.Literal.number(1), exp.Literal.number(0)
            return _case(self._is_in(known), one, none)
        # The formula would contain INTERSECT ALL or EXCEPT ALL twice: count its rows instead.
        return self._count(node, self._next())

    def _of_union(
        self, node: Node, of: Callable[[Node], Node], sum_of: type[exp.Binary], *, every: bool
    ) -> Node:
        """Combine one term per operand of a UNION and its nested UNIONs by ``sum_of``. For an
        operand that is a set operation, ``of`` computes the term.

        ``every``: whether duplicate rows count, so that only nested UNION ALLs are included.
        """
        number, terms, todo = 0, list[Node](), [node]
        while todo:
            known = _inside(found := todo.pop())
            if _keeps_all(known) or (not every and isinstance(known, exp.Union)):
                todo += (known.expression, known.this)
            elif isinstance(known, exp.SetOperation):
                terms.append(of(known))
            elif number:
                # Operands that are no set operations share one number, so that their rows are
                # counted together.
                self._add(found, number)
            else:
                terms.append(self._count(found, number := self._next()))
                terms[-1] = terms[-1] if every else _any(terms[-1])
        return exp.Paren(this=reduce(lambda a, b: sum_of(this=a, expression=b), terms))

    def _next(self) -> int:
        return 1 + max(self._operands, default=0)

    def _add(self, node: Node, number: int) -> None:
        found = _branches(node, self.read)
        self._branches += found
        self._operands += [number] * len(found)

    def _count(self, node: Node, number: int) -> Node:
        """Add ``node`` as operand ``number``; return the count of its rows in a group."""
        self._add(node, number)
        column = exp.Column(this=exp.Identifier(this=f"{HIDDEN}{number}", quoted=True))
        return exp.Anonymous(this="count", expressions=[column])

    def _marked(self, branch: FromEntry, operand: int) -> FromEntry:
        """``branch`` with a hidden column per operand: 1 for ``operand``, NULL for the others."""
        marks = (
            SelectItem(exp.Literal.number(1) if n == operand else exp.Null(), f"{HIDDEN}{n}")
            for n in range(1, 1 + max(self._operands))
        )
        return FromEntry(
            Unresolved((branch,), (), (SelectItem(None), *marks)), "", node=branch.node
        )


def _any(count: Node) -> Node:
    return exp.Paren(this=exp.GT(this=count, expression=exp.Literal.number(0)))


def _case(condition: Node, true: Node, false: Node) -> Node:
    return exp.Case(ifs=[exp.If(this=condition, true=true)], default=false)

"""ASOF joins: each left row with the right row of its key that is nearest in time
(:class:`.Nearest`). ``FOR SYSTEM_TIME AS OF`` is an ASOF join by the right stream's event time.

ON has equalities, one comparison of times (unless MATCH_CONDITION has it), and perhaps limits on
how far the nearest row may be: ``b.ts <= a.ts AND b.ts >= a.ts - INTERVAL '5' MINUTE``. In tables
and in streams with latest per key, a key has one row: the current one when the left row arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    Output,
    columns,
    substitute,
)
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.outer_joins import JoinKind, LookUp, Nearest, NearestSide, OuterJoin
from anabranch_contract.queries.types import FLOATING, INTEGRAL, TIMESTAMPS, DataType, TypeKind
from anabranch_planner.binding.look_ups import ChainPlan, is_look_up, with_inner
from anabranch_planner.binding.typecheck import (
    COMPARISONS,
    MIRRORED,
    aliases,
    boolean,
    compare,
    split_between,
    typed,
)
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.unresolved import (
    AsOf,
    Condition,
    Node,
    OuterSide,
    Unresolved,
    at,
    conjunction,
    describe,
    operands,
    unsupported,
)

_ORDERED = frozenset(map(str, NearestSide))
_COMPARED = _ORDERED | {"eq"}
_ONE_COMPARISON = "write MATCH_CONDITION (left.ts >= right.ts) before ON, or one comparison in ON"
#: Maximum digits of a decimal in an ASOF comparison, so that its unscaled value fits in 64 bits.
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class AsOfChain:
    """An ASOF join with typed conditions (for other outer joins see :class:`.look_ups.Chain`).

    Attributes:
        keys: pairs of equated expressions (left, right). ``times``: the two compared times.
        filters: conditions that read right rows only.
    """

    query: Unresolved
    side: OuterSide
    left: Scope
    right: Scope
    shown_scope: Scope
    keys: tuple[tuple[Expr, Expr], ...]
    times: tuple[Expr, Expr]
    order: NearestSide
    within: tuple[Expr, ...]
    filters: tuple[Node, ...]

    @property
    def kept(self) -> bool:
        """Whether results of the ASOF join are a stream of changes (inserts and deletes)."""
        return True

    @property
    def is_full(self) -> bool:
        """Whether the ASOF join is a FULL JOIN, so that right rows without a match are results."""
        return False

    @property
    def by_arrival(self) -> bool:
        """Whether equal left rows of the ASOF join may have different partners, by arrival time."""
        return False

    def right_rows(self) -> Unresolved:
        """The statement that produces the right rows of the ASOF join."""
        source = replace(self.side.source, using=(), natural=False)
        return replace(
            self.query,
            sources=(source,),
            conditions=tuple(Condition(node, 1) for node in self.filters),
            outer=(),
            post_join=None,
        )

    def plan(self, shown: Sequence[tuple[str, Expr]], after: Iterable[Node]) -> ChainPlan:
        """Plan of the ASOF join: columns of left and right rows, and result expressions over them.

        Args:
            shown: output columns of the statement, as pairs of name and expression.
            after: the conjuncts of WHERE that read columns of right rows.
        """
        where = []
        for node in after:
            with at(node):
                where.append(boolean(node, self.shown_scope))
        read = [c for e in (*(e for _, e in shown), *where, *self.within) for c in columns(e)]
        sides = []
        for place, own in enumerate((self.left, self.right)):
            own_columns = (c for c in read if c.alias in own.streams)
            keys = (k[place] for k in self.keys)
            listed = dict.fromkeys([*own_columns, *keys, self.times[place]])
            sides.append({e: f"{'lr'[place]}{n}" for n, e in enumerate(listed, 1)})
        names = {**sides[0], **sides[1]}

        def over(expr: Expr) -> Expr:
            return substitute(expr, lambda c: Column("", names[c], c.type))

        nearest = Nearest(
            tuple((sides[0][a], sides[1][b]) for a, b in self.keys),
            (sides[0][self.times[0]], sides[1][self.times[1]]),
            self.order,
            tuple(map(over, self.within)),
        )
        partner = str(next(iter(self.right.streams.values())).name)
        known = self.shown_scope.computed
        left, right = (
            tuple((n, known.get(e, e) if isinstance(e, Column) else e) for e, n in own.items())
            for own in sides
        )
        look_up = LookUp(self.side.kind, partner, _types(right), nearest=nearest)
        outer = OuterJoin(
            self.side.kind,
            _types(left),
            (),
            partner,
            tuple(Output(name, over(e)) for name, e in shown),
            look_ups=(look_up,),
            where=tuple(map(over, where)),
            kept=True,
        )
        return ChainPlan(left, ((self.right_rows(), right),), outer, ())


def _types(shown: Iterable[tuple[str, Expr]]) -> tuple[tuple[str, DataType], ...]:
    return tuple((name, e.type) for name, e in shown)


# --- versions as of a time ------------------------------------------------------------------------


def with_versions(query: Unresolved, left: Scope, rights: Sequence[Scope]) -> Unresolved:
    """``query`` with ``FOR SYSTEM_TIME AS OF`` rewritten as ASOF joins by event time. Tables and
    streams with latest per key are joined as of the left row's arrival instead.

    Args:
        left, rights: the scopes (visible names) of the left side and of each right side.

    Raises:
        QueryError: the right side keeps no earlier rows, or has no event time for the join.
    """
    outer = [
        side if side.asof is None else _with_version(side, side.asof, left, right)
        for side, right in zip(query.outer, rights, strict=True)
    ]
    for side, made, right in zip(query.outer, outer, rights, strict=True):
        if made.source.at_arrival and not is_look_up(right):
            plain = [r for other, r in zip(query.outer, rights, strict=True) if other.asof is None]
            _check_others(side, (left, *plain))
    if tuple(outer) == query.outer:
        return query
    later = (n for n, s in enumerate(outer) if s.asof is not None or s.kind is not JoinKind.INNER)
    end = next(later, len(outer))
    return with_inner(query, outer[:end], outer[end:])


def _with_version(side: OuterSide, asof: AsOf, left: Scope, right: Scope) -> OuterSide:
    """One side of ``FOR SYSTEM_TIME AS OF``, rewritten as an ASOF join or by arrival."""
    with at(side.source.node):
        own = list(right.streams.values())
        if asof.time is not None:
            return _as_of_time(side, asof.time, left, own)
        if any(stream.is_table for stream in own):
            raise unsupported(
                f"an ASOF JOIN with table {str(own[0].name)!r}, whose rows have no history",
                "write JOIN, or register it as a stream",
            )
        if len(own) != 1 or not own[0].latest:
            return side
        nodes = [] if side.on is None else operands(side.on, exp.And)
        compared = {
            column.name.lower()
            for node in nodes
            if isinstance(node, exp.EQ)
            for column in node.find_all(exp.Column)
        }
        if not {*compared, *(u.lower() for u in side.source.using)} >= {
            c.lower() for c in own[0].latest
        }:
            raise unsupported(
                f"an ASOF JOIN that does not compare the key {', '.join(own[0].latest)} of "
                f"{str(own[0].name)!r}, which keeps the latest row of a key",
                "compare it by =, or register the stream without latest",
            )
        on = [*nodes, *(() if asof.match is None else (asof.match,))]
        return _at_arrival(replace(side, on=conjunction(n.copy() for n in on) if on else None))


def _at_arrival(side: OuterSide) -> OuterSide:
    """The side of an ASOF join, joined with the rows current when a left row arrives."""
    return replace(side, source=replace(side.source, at_arrival=True), asof=None)


def _check_others(side: OuterSide, others: Iterable[Scope]) -> None:
    """Reject a join as of arrival if it reads several streams with latest per key: within a batch,
    the tuples of two streams have no order. The join looks rows of ``side`` up; ``others`` are its
    other sides."""
    for scope in others:
        for alias, stream in scope.streams.items():
            if stream.latest and not stream.is_table:
                with at(side.source.node):
                    raise unsupported(
                        f"a join as of the arrival of {alias!r}, which keeps the latest rows, too",
                        f"look {alias!r} up with FOR SYSTEM_TIME AS OF as well, or register stream "
                        f"{str(stream.name)!r} without latest",
                    )


def _as_of_time(side: OuterSide, time: Node, left: Scope, own: list[Stream]) -> OuterSide:
    """The side of ``FOR SYSTEM_TIME AS OF time`` as an ASOF join by event time."""
    stream = own[0]
    name = str(stream.name)
    if len(own) != 1 or not isinstance(side.source.of, str):
        raise unsupported("FOR SYSTEM_TIME AS OF a subquery", "name a registered stream")
    now = _is_now(time)
    if not now and typed(time, left).type.kind not in {*TIMESTAMPS, TypeKind.DATE}:
        with at(time):
            raise QueryError(
                "type-mismatch",
                f"FOR SYSTEM_TIME AS OF {describe(time)}, which is no time",
                remedy="name an event-time column of a stream before it, or PROCTIME()",
            )
    if stream.latest or stream.is_table:
        return _at_arrival(side)
    if stream.has_changes:
        raise unsupported(
            f"FOR SYSTEM_TIME AS OF {name!r}, whose earlier rows are replaced",
            "leave it out, for results that change with these rows; or "
            f"register {name!r} as a stream that keeps all rows, each a version from its event "
            "time on",
        )
    if now:
        raise unsupported(
            f"FOR SYSTEM_TIME AS OF {describe(time)} of {name!r}, which keeps all versions",
            f"write a time of the left row, or register {name!r} with latest and its key",
        )
    if stream.event_time is None:
        raise QueryError(
            "no-event-time",
            f"FOR SYSTEM_TIME AS OF needs the event time of {name!r}, and it declares none",
            remedy=f"declare event_time for {name!r}",
        )
    version = exp.column(stream.event_time, table=side.source.alias)
    match = exp.GTE(this=time.copy(), expression=version)
    return replace(side, asof=AsOf(match=match))


def _is_now(node: Node) -> bool:
    """Whether a time in SQL is the present time, as in ``AS OF proctime()``."""
    if isinstance(node, exp.CurrentTimestamp):
        return True
    name = str(node.this).upper() if isinstance(node, exp.Anonymous) else ""
    return name in ("PROCTIME", "NOW", "CURRENT_TIMESTAMP")


# --- conditions -----------------------------------------------------------------------------------


def asof_of(query: Unresolved, left: Scope, right: Scope) -> AsOfChain | None:
    """The ASOF join of ``query``; None if it has none.

    Args:
        left, right: the scopes (visible names) of the two sides of the first outer join.

    Raises:
        QueryError: a further outer join, or conditions that fit no ASOF join.
    """
    if all(side.asof is None for side in query.outer):
        return None
    side = next(side for side in query.outer if side.asof is not None)
    with at(side.source.node):
        if len(query.outer) > 1:
            raise unsupported(
                "an ASOF JOIN beside another ASOF or outer join",
                "register the first one as a query, and read it in the other's FROM by name",
            )
        assert side.asof is not None
        return _bound(query, side, side.asof, left, right)


@dataclass(frozen=True, slots=True)
class _Compared:
    """A comparison in an ASOF join: an expression over left rows with one over right rows."""

    op: str
    left: Expr
    right: Expr

    @property
    def is_plain(self) -> bool:
        return all(isinstance(_uncast(e), Column) for e in (self.left, self.right))


def _bound(query: Unresolved, side: OuterSide, asof: AsOf, left: Scope, right: Scope) -> AsOfChain:
    """The ASOF join of ``query`` with conditions sorted by type: keys, times, limits, filters."""
    source = side.source
    names = left.common(right) if source.natural else source.using
    both = left.joined(right, names)
    keys, compared = list[tuple[Expr, Expr]](), list[_Compared]()
    within, filters = list[Expr](), list[Node]()
    for place, name in enumerate(names, 1):
        # As in DuckDB, the last column of USING has the times, unless they are compared elsewhere.
        last = asof.match is None and side.on is None and place == len(names)
        one = _compared("ge" if last else "eq", left.column(name), right.column(name), left)
        assert one is not None
        (compared.append(one) if last else keys.append((one.left, one.right)))
    for node in () if side.on is None else _conjuncts(side.on):
        with at(node):
            condition = boolean(node, both)
            op = COMPARISONS.get(type(node), "")
            one = (
                _compared(op, typed(node.this, both), typed(node.expression, both), left)
                if op in _COMPARED
                else None
            )
            if one is not None and one.op == "eq":
                keys.append((one.left, one.right))
            elif one is not None:
                compared.append(one)
            elif aliases(condition) <= frozenset(right.streams) and aliases(condition):
                filters.append(node)
            else:
                within.append(condition)
    if asof.match is not None:
        with at(asof.match):
            op = COMPARISONS.get(type(asof.match), "")
            sides = [typed(n, both) for n in (asof.match.this, asof.match.expression)] if op else []
            match = _compared(op, sides[0], sides[1], left) if op in _ORDERED else None
            if match is None:
                raise unsupported(
                    f"MATCH_CONDITION ({describe(asof.match)})",
                    "compare a time of each side by >=, >, <= or <",
                )
    else:
        match = _only(compared)
        compared.remove(match)
    _check_kind(match.left.type)
    if not keys:
        raise unsupported("an ASOF JOIN without an equality", "compare a key of each side by =")
    within += (compare(c.op, c.left, c.right) for c in compared)
    for condition in within:
        if not _is_limit(condition, match, left):
            raise unsupported(
                f"the condition {condition} of an ASOF JOIN",
                "write it in WHERE, or limit how far the nearest row is, such as ... AND "
                "right.ts >= left.ts - INTERVAL '5' MINUTE",
            )
    return AsOfChain(
        query,
        side,
        left,
        right,
        left.joined(right.nullable(), names) if side.kind is JoinKind.LEFT else both,
        tuple(keys),
        (match.left, match.right),
        NearestSide(match.op),
        tuple(within),
        tuple(filters),
    )


def _conjuncts(node: Node) -> Iterable[Node]:
    for part in operands(node, exp.And):
        if isinstance(part, exp.Between):
            yield from split_between(part)
        else:
            yield part


def _compared(op: str, one: Expr, other: Expr, left: Scope) -> _Compared | None:
    """``one op other``, mirrored if needed so that the left rows' expression comes first; None
    unless one side reads only left rows and the other one only right rows."""
    condition = compare(op, one, other)
    if not isinstance(condition, Call) or len(condition.args) != 2:
        return None
    a, b = condition.args
    if condition.op != op or a.type != b.type:
        return None
    mine = frozenset(left.streams)
    over = aliases(a), aliases(b)
    if not over[0] or not over[1]:
        return None
    if over[0] <= mine and not over[1] & mine:
        return _Compared(op, a, b)
    if over[1] <= mine and not over[0] & mine:
        return _Compared(MIRRORED[op], b, a)
    return None


def _only(compared: Sequence[_Compared]) -> _Compared:
    """The comparison of times of an ASOF join: the only one, or the only one of plain columns."""
    plain = [one for one in compared if one.is_plain]
    found = plain if len(plain) == 1 else list(compared)
    if len(found) != 1:
        raise unsupported(f"an ASOF JOIN with {len(found)} comparisons of times", _ONE_COMPARISON)
    return found[0]


def _check_kind(kind: DataType) -> None:
    ordered = {*INTEGRAL, *FLOATING, *TIMESTAMPS, TypeKind.DATE}
    narrow = kind.kind is TypeKind.DECIMAL and kind.precision <= _DIGITS
    if kind.kind not in ordered and not narrow:
        raise unsupported(
            f"an ASOF JOIN by values of type {kind}", "compare times, dates or numbers"
        )


def _is_limit(condition: Expr, match: _Compared, left: Scope) -> bool:
    """Whether an ASOF condition only limits the distance of the nearest right row: if that row
    violates it, all right rows do."""
    if aliases(condition) <= frozenset(left.streams):
        return True
    if not isinstance(condition, Call) or condition.op not in _ORDERED:
        return False
    time = _uncast(match.right)
    one, other = (_direction(e, time, left) for e in condition.args)
    if one is None or other is None:
        return False
    rises = one - other if condition.op in ("ge", "gt") else other - one
    return rises > 0 if match.op in ("ge", "gt") else rises < 0


def _uncast(expr: Expr) -> Expr:
    """A typed expression without the casts around it."""
    while isinstance(expr, Call) and expr.op == "cast":
        expr = expr.args[0]
    return expr


def _direction(expr: Expr, time: Expr, left: Scope) -> int | None:
    """Direction in which ``expr`` changes with the right row's ``time``: 1 if it rises, -1 if it
    falls, 0 if it reads no right rows; None if unknown."""
    if aliases(expr) <= frozenset(left.streams):
        return 0
    if isinstance(expr, Literal):
        return 0
    if _uncast(expr) == time:
        return 1
    if not isinstance(expr, Call) or expr.op not in ("add", "sub", "cast"):
        return None
    found = [_direction(e, time, left) for e in expr.args]
    if None in found:
        return None
    one, *more = (d for d in found if d is not None)
    other = more[0] if more else 0
    total = one - other if expr.op == "sub" else one + other
    return total if abs(one) + abs(other) <= 1 else None

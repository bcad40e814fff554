"""Conditions on the time of the batch: ``o.ts > now() - INTERVAL '24' HOUR``.

Such a condition compares a time of joined rows with ``now()``, to which intervals are added, or
with the beginning of its day or another unit. It begins or stops to hold at a moment that follows
from the row alone. So it is no filter, but a limit of the times at which a row is in the view
(``semantics.md``, "Rolling conditions").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
from sqlglot import exp

from anabranch_contract.queries.coercion import TIMESTAMP
from anabranch_contract.queries.expressions import NOW, Call, Expr, Literal, reads_clock
from anabranch_contract.queries.types import TIMESTAMPS, TypeKind
from anabranch_contract.queries.views import MOMENT, TimeLimit
from anabranch_planner.binding.literals import coerce
from anabranch_planner.binding.post_join import Split, sorts_only
from anabranch_planner.sql.scope import ShownColumn
from anabranch_planner.sql.unresolved import PostJoin, Unresolved, unsupported

#: An expression over joined rows, and the time limit that takes its moments from the expression.
Rolling = tuple[Expr, TimeLimit]
_TIMES = frozenset({*TIMESTAMPS, TypeKind.DATE})
_DAY = 86_400_000_000
#: Unit of a date or time -> its microseconds.
_UNITS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000,
    "hour": 3_600_000_000, "day": _DAY,
}  # fmt: skip
#: Greatest shift: no two times of the years 1 to 9999 are that far apart.
_FAR = 1 << 60
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


@dataclass(frozen=True, slots=True)
class _Clock:
    """``now()`` plus ``before``, rounded down to a multiple of ``unit`` (microseconds)."""

    before: int = 0
    unit: int = 1


@dataclass(frozen=True, slots=True)
class _TimeSum:
    """A sum of clocks, other expressions, each with its sign, and a constant."""

    clocks: tuple[tuple[int, _Clock], ...] = ()
    others: tuple[tuple[int, Expr], ...] = ()
    constant: int = 0

    def minus(self, other: _TimeSum) -> _TimeSum:
        return _TimeSum(
            (*self.clocks, *((-sign, one) for sign, one in other.clocks)),
            (*self.others, *((-sign, one) for sign, one in other.others)),
            self.constant - other.constant,
        )

    def gathered(self) -> _TimeSum:
        """The sum with its timestamp and its varying intervals as one term: ``ts + wait``."""
        times = [term for term in self.others if term[1].type.kind in TIMESTAMPS]
        spans = [term for term in self.others if term[1].type.kind is TypeKind.INTERVAL]
        if len(times) != 1 or len(times) + len(spans) != len(self.others):
            return self
        ((own, found),) = times
        for sign, span in spans:
            found = Call("add" if sign == own else "sub", (found, span), found.type)
        return replace(self, others=((own, found),))


def limits_of(condition: Expr) -> tuple[Rolling, ...]:
    """The limits that are equivalent to ``condition``, which reads the clock.

    Raises:
        QueryError: ``unsupported-sql``: it has another form.
    """
    if isinstance(condition, Call) and condition.op == "not":
        (below,) = condition.args
        if isinstance(below, Call) and below.op in _NEGATED:
            return limits_of(msgspec.structs.replace(below, op=_NEGATED[below.op]))
    if isinstance(condition, Call) and condition.op in _FLIPPED:
        op, (left, right) = condition.op, map(_sum, condition.args)
        both = left.minus(right).gathered()
        if len(both.clocks) == len(both.others) == 1:
            (sign, clock), (other_sign, other) = both.clocks[0], both.others[0]
            kind = other.type.kind
            if sign == -other_sign and kind in _TIMES and not reads_clock(other):
                op = op if sign > 0 else _FLIPPED[op]
                # The clock  op  other + constant
                return tuple(_limits(op, clock, other, -sign * both.constant))
    months = any(part in str(condition) for part in ("'month'", "'year'", "'quarter'"))
    raise unsupported(
        f"{condition} in a condition",
        "a month has no fixed length: write INTERVAL '30' DAY"
        if months
        else "compare a time with now() in a condition of its own, below AND only: "
        "ts > now() - INTERVAL '24' HOUR, or CAST(ts AS DATE) = current_date()",
    )


def _limits(op: str, clock: _Clock, expr: Expr, constant: int) -> Iterator[Rolling]:
    """Limits equivalent to ``clock op expr + constant``; times are whole microseconds."""
    delay = _near(-clock.before)
    # The clock is now(), rounded down to a multiple of its unit. So it is at most x until the least
    # multiple greater than x, and at least x from the least multiple that is not less than x.
    if op in ("le", "lt", "eq"):
        yield expr, TimeLimit("", _near(constant + (op != "lt")), True, clock.unit, delay)
    if op in ("ge", "gt", "eq"):
        yield expr, TimeLimit("", _near(constant + (op == "gt")), False, clock.unit, delay)


def _near(micros: int) -> int:
    return max(-_FAR, min(micros, _FAR))


def _sum(expr: Expr) -> _TimeSum:
    """A bound ``expr`` as a sum; without a clock in it, as one term with a constant."""
    other = _TimeSum(others=((1, expr),))
    if isinstance(expr, Literal):
        known = isinstance(expr.value, int)
        if known and expr.type.kind is TypeKind.INTERVAL:
            return _TimeSum(constant=int(str(expr.value)))
        if known and expr.type.kind is TypeKind.INT:
            # Compared with a difference of dates.
            return _TimeSum(constant=int(str(expr.value)) * _DAY)
        return other
    if not isinstance(expr, Call):
        return other
    if expr.op == NOW:
        return _TimeSum(clocks=((1, _Clock()),))
    if expr.op in ("add", "sub", "datediff"):
        left, right = map(_sum, expr.args)
        zero = _TimeSum()
        return left.minus(right if expr.op != "add" else zero.minus(right))
    if expr.op in ("date_add", "timestampadd"):
        *unit, number, base = expr.args if expr.op == "timestampadd" else reversed(expr.args)
        micros = _UNITS.get(str(unit[0].value)) if unit and isinstance(unit[0], Literal) else _DAY
        if micros and isinstance(number, Literal) and isinstance(number.value, int):
            return _sum(base).minus(_TimeSum(constant=-int(str(number.value)) * micros))
        return other
    rounded = _rounded(expr)
    return other if rounded is None else rounded


def _rounded(expr: Call) -> _TimeSum | None:
    """The sum for a rounded-down clock or a cast between types of times; None for the rest."""
    if expr.op == "cast":
        (inner,), kind = expr.args, expr.type.kind
        if kind not in _TIMES or inner.type.kind not in _TIMES:
            return None
        if kind is not TypeKind.DATE or inner.type.kind is TypeKind.DATE:
            # In UTC a date is its midnight, and both types of timestamps have the same values.
            return _sum(inner)
        unit = _DAY
    elif expr.op == "date_trunc":
        named, inner = expr.args
        unit = _UNITS.get(str(named.value), 0) if isinstance(named, Literal) else 0
    else:
        return None
    below = _sum(inner)
    if not unit or below.others or len(below.clocks) != 1:
        return None
    sign, clock = below.clocks[0]
    if sign < 0 or (clock.unit > 1 and below.constant % clock.unit):
        return None
    if clock.unit > 1:
        # Rounded twice: to the longer unit, which the shorter divides.
        unit = max(unit, clock.unit)
    return _TimeSum(clocks=((1, _Clock(clock.before + below.constant, unit)),))


def as_table(query: Unresolved) -> Unresolved:
    """``query`` with a post-join part, as rows with time limits leave its results again."""
    if query.post_join is not None and not sorts_only(query):
        return query
    count = exp.Anonymous(this="count", expressions=[exp.Star()])
    return replace(query, post_join=PostJoin(group=(), group_all=True, copies=count))


def with_limits(parts: Split | None, limits: Sequence[Rolling]) -> Split | None:
    """``parts`` with the limits of their joined rows."""
    if parts is None or not limits:
        return parts
    columns, found = named(limits)
    joined = (*parts.joined, *(ShownColumn(name, expr) for name, expr in columns))
    return replace(parts, joined=joined, view=replace(parts.view, limits=found))


def named(
    limits: Sequence[Rolling],
) -> tuple[tuple[tuple[str, Expr], ...], tuple[TimeLimit, ...]]:
    """The joined rows' columns that the limits read, and the limits of these columns."""
    columns = dict[Expr, str]()
    found = list[TimeLimit]()
    for expr, limit in dict.fromkeys(limits):
        name = columns.setdefault(coerce(expr, TIMESTAMP), f"{MOMENT}{len(columns) + 1}")
        found.append(msgspec.structs.replace(limit, column=name))
    return tuple((name, expr) for expr, name in columns.items()), tuple(found)


def check_inner(given: Sequence[Rolling], known: Sequence[Rolling], kind: str) -> None:
    """Reject time limits on the pairs of an outer, semi or anti join that its left rows lack.

    Raises:
        QueryError: ``unsupported-sql``.
    """
    if not all(one in known for one in given):
        raise unsupported(
            f"{NOW}() in the condition or right side of a {kind}",
            "register the right rows as a query of its own, SELECT ... WHERE ts > now() - "
            "INTERVAL '24' HOUR, and join it by its name",
        )

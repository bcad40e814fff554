"""Rolling conditions, which compare with the batch's time: ``o.ts > now() - INTERVAL '24' HOUR``.

Such a condition compares a time of joined rows with ``now()``, plus or minus intervals, or with the
beginning of its day or of another unit. The moment from which, or until which, it holds depends on
the row alone. So it is not a filter, but a limit of the times at which a row is in the view
(``semantics.md``, "Rolling conditions").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
from sqlglot import exp

from anabranch_contract.queries.coercion import TIMESTAMP
from anabranch_contract.queries.expressions import (
    BOOLEAN,
    NOW,
    Call,
    Expr,
    Literal,
    reads_clock,
    terms,
)
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import MOMENT, TimeLimit
from anabranch_planner.binding.literals import coerce
from anabranch_planner.binding.post_join import Split, sorts_only
from anabranch_planner.binding.typecheck import balanced
from anabranch_planner.normal.clocks import MONTHS, TIMES, UNITS, Clock, time_sum, unit_of
from anabranch_planner.normal.conditions import operands_of
from anabranch_planner.sql.scope import ShownColumn
from anabranch_planner.sql.unresolved import PostJoin, Unresolved, unsupported

#: An expression over joined rows, and the time limit of each row that its value determines.
Rolling = tuple[Expr, TimeLimit]
#: Maximum shift in microseconds: no two times of the years 1 to 9999 are farther apart.
_FAR = 1 << 60
#: Maximum shift of :data:`_FIRST` and :data:`_LAST` beyond the times of all batches: 800 years.
_CENTURIES = 800 * 365 * 86_400_000_000
#: The times 0001-01-01 and 9999-12-31, long before and after the times of all batches.
_FIRST, _LAST = (
    Literal(-62_135_596_800_000_000, TIMESTAMP),
    Literal(253_402_214_400_000_000, TIMESTAMP),
)
_INTERVAL = parse_type("interval day to second")
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def limits_of(condition: Expr, shown: str) -> tuple[Rolling, ...]:
    """The time limits of joined rows that are equivalent to the rolling condition ``condition``.

    Args:
        shown: the condition as written.

    Raises:
        QueryError: ``unsupported-sql``: the condition has no equivalent limits.
    """
    if isinstance(condition, Call):
        found = _limits_of(condition)
        if found is not None:
            return found
    raise unsupported(f"{shown} in a condition", _remedy(condition))


def _limits_of(condition: Call) -> tuple[Rolling, ...] | None:
    """The time limits of rows that are equivalent to ``condition``; None if there are none."""
    if condition.op == "not":
        (below,) = condition.args
        if isinstance(below, Call) and below.op in _NEGATED:
            return _limits_of(msgspec.structs.replace(below, op=_NEGATED[below.op]))
    if condition.op == "or":
        return _or_always(condition)
    if condition.op not in _FLIPPED:
        return None
    differences = _differences(condition)
    if differences:
        found = tuple(map(_limits_of, differences))
        return None if None in found else tuple(limit for one in found for limit in one or ())
    op, unit = condition.op, unit_of(condition.args)
    left, right = (time_sum(arg, unit) for arg in condition.args)
    both = left.minus(right).gathered()
    if len(both.clocks) == len(both.others) == 1:
        (sign, clock), (other_sign, other) = both.clocks[0], both.others[0]
        if sign == -other_sign and other.type.kind in TIMES and not reads_clock(other):
            op = op if sign > 0 else _FLIPPED[op]
            # Now the condition is: clock op other + constant.
            return tuple(_limits(op, clock, other, -sign * both.constant))
    return None


def parts_of(condition: Expr) -> Iterator[Expr]:
    """Conditions that together are equivalent to ``condition``, split so that no AND that reads the
    clock remains below an OR or NOT."""
    op = condition.op if isinstance(condition, Call) and reads_clock(condition) else ""
    parts = operands_of(condition, op)
    if op == "and":
        for part in parts:
            yield from parts_of(part)
        return
    if op == "not" and isinstance(condition, Call):
        (below,) = condition.args
        inside = below.op if isinstance(below, Call) else ""
        if inside in ("and", "or"):
            negated = [Call("not", (part,), BOOLEAN) for part in operands_of(below, inside)]
            yield from parts_of(balanced("or" if inside == "and" else "and", negated))
            return
    clocked = [part for part in parts if reads_clock(part)]
    if op == "or" and len(clocked) == 1:
        split = tuple(parts_of(clocked[0]))
        if len(split) > 1 or split[0] is not clocked[0]:
            others = [part for part in parts if part is not clocked[0]]
            for part in split:
                yield from parts_of(balanced("or", [part, *others]))
            return
    yield condition


def _or_always(condition: Call) -> tuple[Rolling, ...] | None:
    """The limits of an OR with one alternative that reads the clock. For rows that satisfy another
    alternative, the limit is at a time that no batch reaches."""
    parts = operands_of(condition, "or")
    clocked = [part for part in parts if reads_clock(part)]
    if len(clocked) != 1:
        return None
    always = balanced("or", [part for part in parts if part is not clocked[0]])
    found = _limits_of(clocked[0]) if isinstance(clocked[0], Call) else None
    if found is None or any(abs(limit.shift) + abs(limit.delay) > _CENTURIES for _, limit in found):
        return None
    return tuple(
        (
            Call(
                "case",
                (always, _LAST if limit.until else _FIRST, coerce(expr, TIMESTAMP)),
                TIMESTAMP,
            ),
            limit,
        )
        for expr, limit in found
    )


def _differences(condition: Call) -> tuple[Call, ...]:
    """Comparisons of a difference of times that are together equivalent to ``condition``, a
    comparison of whole units between two times (rounded towards 0) with a literal:
    ``timestampdiff(HOUR, ts, now()) < 24``. Empty if ``condition`` has another form."""
    op, (call, bound) = condition.op, condition.args
    if isinstance(call, Literal):
        op, call, bound = _FLIPPED[op], bound, call
    if not isinstance(call, Call) or call.op != "timestampdiff" or not isinstance(bound, Literal):
        return ()
    named, begin, end = call.args
    unit = UNITS.get(str(named.value), 0) if isinstance(named, Literal) else 0
    if not unit or not isinstance(bound.value, int):
        return ()
    count = int(str(bound.value))
    difference = Call("sub", (end, begin), _INTERVAL)

    def compared(op: str, units: int) -> Call:
        return Call(op, (difference, Literal(units * unit, _INTERVAL)), BOOLEAN)

    def below(count: int) -> Call:
        """The condition that there are fewer than ``count`` units."""
        return compared("lt", count) if count > 0 else compared("le", count - 1)

    def least(count: int) -> Call:
        return compared("ge", count) if count > 0 else compared("gt", count - 1)

    return {
        "lt": (below(count),),
        "le": (below(count + 1),),
        "ge": (least(count),),
        "gt": (least(count + 1),),
        "eq": (least(count), below(count + 1)),
    }[op]


def _remedy(condition: Expr) -> str:
    """The remedy for a condition that reads the clock but has no equivalent limits."""
    calls = {term.op for term in terms(condition) if isinstance(term, Call)}
    units = {str(term.value) for term in terms(condition) if isinstance(term, Literal)}
    if "or" in calls:
        return (
            "write one comparison with now(), with a CASE of its lengths: ts > now() - CASE WHEN "
            "x = 1 THEN INTERVAL '1' HOUR ELSE INTERVAL '24' HOUR END"
        )
    if calls & MONTHS.keys():
        unit = min(calls & MONTHS.keys(), key=MONTHS.__getitem__)
        return f"write date_trunc('{unit}', ts) = date_trunc('{unit}', now())"
    if "add_months" in calls or (units & MONTHS.keys() and "date_trunc" not in calls):
        return (
            "a month has no fixed length: write INTERVAL '30' DAY, or begin with a month: "
            "date_trunc('month', now()) - INTERVAL '1' MONTH"
        )
    return (
        "compare a time with now() in a condition of its own: ts > now() - INTERVAL '24' HOUR, "
        "or CAST(ts AS DATE) = current_date()"
    )


def _limits(op: str, clock: Clock, expr: Expr, constant: int) -> Iterator[Rolling]:
    """Time limits equivalent to ``clock op expr + constant``; times are whole microseconds."""
    # A clock rounds now() down to a multiple of its unit. So clock <= x holds until the least
    # multiple greater than x, and clock >= x from the least multiple that is at least x.
    for until, ops, above in ((True, ("le", "lt", "eq"), "lt"), (False, ("ge", "gt", "eq"), "")):
        if op in ops:
            shift = constant + ((op != above) if until else (op == "gt"))
            yield (
                expr,
                TimeLimit(
                    "", _near(shift), until, clock.unit, _near(-clock.before), clock.months,
                    clock.later,
                ),
            )  # fmt: skip


def _near(micros: int) -> int:
    return max(-_FAR, min(micros, _FAR))


def as_table(query: Unresolved) -> Unresolved:
    """``query`` with a post-join part, so that results can be deleted by time limits."""
    if query.post_join is not None and not sorts_only(query):
        return query
    count = exp.Anonymous(this="count", expressions=[exp.Star()])
    return replace(query, post_join=PostJoin(group=(), group_all=True, copies=count))


def with_limits(parts: Split | None, limits: Sequence[Rolling]) -> Split | None:
    """``parts`` of a statement, with the time limits of its joined rows added."""
    if parts is None or not limits:
        return parts
    columns, found = named(limits)
    joined = (*parts.joined, *(ShownColumn(name, expr) for name, expr in columns))
    return replace(parts, joined=joined, view=replace(parts.view, limits=found))


def named(limits: Sequence[Rolling]) -> tuple[tuple[tuple[str, Expr], ...], tuple[TimeLimit, ...]]:
    """The columns of joined rows that time limits read, and the limits over these columns."""
    columns = dict[Expr, str]()
    found = list[TimeLimit]()
    for expr, limit in dict.fromkeys(limits):
        name = columns.setdefault(coerce(expr, TIMESTAMP), f"{MOMENT}{len(columns) + 1}")
        found.append(msgspec.structs.replace(limit, column=name))
    return tuple((name, expr) for expr, name in columns.items()), tuple(found)


def check_inner(given: Sequence[Rolling], known: Sequence[Rolling], kind: str) -> None:
    """Reject time limits on the pairs of an outer, semi or anti join that left rows lack.

    Raises:
        QueryError: ``unsupported-sql``.
    """
    if not all(one in known for one in given):
        raise unsupported(
            f"{NOW}() in the condition or right side of a {kind}",
            "register the right rows as a query of its own, SELECT ... WHERE ts > now() - "
            "INTERVAL '24' HOUR, and join it by its name",
        )

"""Recognition of conditions on event times that are time bounds between two aliases.

``a.ts <= b.ts + INTERVAL '5' MINUTE`` and its many spellings are linear: sums of event-time columns
and intervals. If the difference of the two sides is one column minus another plus a constant, the
condition is a bound ``tau_later - tau_earlier <= c``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch_contract.queries.expressions import Call, Column, Expr, Literal
from anabranch_contract.queries.joins import Micros, Stream
from anabranch_contract.queries.types import TIMESTAMPS, TypeKind


@dataclass(frozen=True, slots=True)
class AliasBound:
    """Time bound: alias ``later`` has an event time at most ``micros`` after alias ``earlier``."""

    earlier: str
    later: str
    micros: Micros


def difference_bounds(
    op: str, left: Expr, right: Expr, streams: Mapping[str, Stream]
) -> tuple[AliasBound, ...]:
    """Time bounds that are together equivalent to ``left op right``; empty if there are none.

    Event times are whole microseconds, so ``< c`` is ``<= c - 1``.
    """
    if op not in ("eq", "lt", "le", "gt", "ge"):
        return ()
    ends = _linear(left, streams), _linear(right, streams)
    if ends[0] is None or ends[1] is None:
        return ()
    terms = Counter(ends[0][0])
    terms.subtract(ends[1][0])
    constant = ends[1][1] - ends[0][1]
    remaining = {alias: factor for alias, factor in terms.items() if factor}
    if sorted(remaining.values()) != [-1, 1]:
        return ()
    # At this point the condition is: plus - minus op constant.
    plus = next(a for a, factor in remaining.items() if factor == 1)
    minus = next(a for a, factor in remaining.items() if factor == -1)
    bounds = []
    if op in ("eq", "lt", "le"):
        bounds.append(AliasBound(minus, plus, constant - (op == "lt")))
    if op in ("eq", "gt", "ge"):
        bounds.append(AliasBound(plus, minus, -constant - (op == "gt")))
    return tuple(bounds)


def _linear(expr: Expr, streams: Mapping[str, Stream]) -> tuple[Counter[str], Micros] | None:
    """``expr`` as event-time columns with factors, plus a constant; None if not linear."""
    if isinstance(expr, Column):
        if streams[expr.alias].event_time != expr.name:
            return None
        return Counter({expr.alias: 1}), 0
    if isinstance(expr, Literal):
        if expr.type.kind is TypeKind.INTERVAL and isinstance(expr.value, int):
            return Counter(), expr.value
        return None
    if expr.op == "cast" and {expr.type.kind, expr.args[0].type.kind} <= TIMESTAMPS:
        # In UTC both timestamp types have the same microseconds.
        return _linear(expr.args[0], streams)
    if expr.op not in ("add", "sub"):
        return None
    return _combined(expr, streams)


def _combined(expr: Call, streams: Mapping[str, Stream]) -> tuple[Counter[str], Micros] | None:
    first, second = (_linear(arg, streams) for arg in expr.args)
    if first is None or second is None:
        return None
    terms = Counter(first[0])
    if expr.op == "add":
        terms.update(second[0])
        return terms, first[1] + second[1]
    terms.subtract(second[0])
    return terms, first[1] - second[1]

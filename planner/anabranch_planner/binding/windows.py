"""Time windows in GROUP BY: ``window(ts, length[, slide[, start]])``, ``session_window(ts, gap)``
and ``cumulate(ts, step, size[, start])``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from anabranch_contract.durations import parse_duration
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import TIMESTAMP
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.types import TIMESTAMPS
from anabranch_contract.queries.views import TimeWindow
from anabranch_planner.binding.literals import coerce
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.unresolved import Node, describe

#: Names of the functions, which also qualify the columns ``start`` and ``end``.
WINDOW, SESSION, CUMULATE = "window", "session_window", "cumulate"
WINDOWS = (WINDOW, SESSION, CUMULATE)
#: Maximum number of windows per row: a slide much shorter than the length multiplies rows.
MOST_WINDOWS = 1000


def window_value(name: str) -> exp.Expression:
    """The time window of a group, as a struct of start and end; ``name`` is the window function."""
    ends = ((exp.Literal.string(end), exp.column(end, name)) for end in ("start", "end"))
    return exp.Anonymous(this="named_struct", expressions=[node for pair in ends for node in pair])


def is_window(node: Node) -> bool:
    """Whether ``node`` calls a time-window function of GROUP BY."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in WINDOWS


def keyed(tree: Node) -> Node:
    """The key ``tree`` of GROUP BY; if it is the start or end of a tumbling or sliding window, the
    window, since both have the same groups."""
    ended = tree.this if isinstance(tree, exp.Dot) and is_window(tree.this) else None
    return tree if ended is None or str(ended.this).lower() != WINDOW else ended


def independent(keys: Sequence[Node]) -> list[Node]:
    """The ``keys`` of GROUP BY without expressions that a time window among them determines."""
    window = next(filter(is_window, keys), None)

    def follows(tree: Node) -> bool:
        outside = tree.walk(prune=is_window)
        found = [part for part in outside if isinstance(part, exp.Column) or is_window(part)]
        return bool(found) and all(part == window for part in found)

    return [tree for tree in keys if tree == window or not follows(tree)]


def no_window(name: str) -> QueryError:
    """The error for a time-window function ``name`` whose window GROUP BY does not have."""
    return QueryError(
        "not-grouped", f"GROUP BY has no {name}", remedy=f"add GROUP BY {name}(ts, '10 minutes')"
    )


def window_of(call: Node, column: str, scope: Scope) -> tuple[TimeWindow, Expr]:
    """The time window that ``call`` denotes, over ``column`` of the joined rows; and the expression
    of this column.

    Raises:
        QueryError: ``bad-arguments``, ``bad-window``, ``type-mismatch``.
    """
    name, arguments = str(call.this).lower(), call.expressions
    session, cumulates = name == SESSION, name == CUMULATE
    if not 2 + cumulates <= len(arguments) <= (2 if session else 4):
        raise QueryError(
            "bad-arguments",
            f"{name}() takes a time and "
            + (
                "a gap"
                if session
                else "a step, a size and a start"
                if cumulates
                else "a length, a slide and a start"
            )
            + f", not {len(arguments)} arguments",
            remedy="write session_window(ts, '5 minutes')"
            if session
            else "write CUMULATE(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)"
            if cumulates
            else "write window(ts, '10 minutes'[, '5 minutes'[, '1 minute']])",
        )
    time = typed(arguments[0], scope)
    if time.type.kind not in TIMESTAMPS:
        raise QueryError(
            "type-mismatch",
            f"{name}() takes a timestamp, its argument is of type {time.type}",
            remedy="cast it to a TIMESTAMP first",
        )
    length, *rest = (_micros(node) for node in arguments[1:])
    step = 0
    if cumulates:
        step, length = length, rest[0]
    slide, start = rest[0] if rest else length, rest[1] if len(rest) > 1 else 0
    uneven = cumulates and (step <= 0 or length % step)
    if uneven or length <= 0 or slide <= 0 or slide > length or abs(start) >= slide:
        raise QueryError(
            "bad-window",
            "the gap of a session is positive"
            if session
            else "the step of a cumulating window is positive, its size is a multiple of the step, "
            "its start is less than the size"
            if cumulates
            else "the slide of a window is positive and at most its length, its start is less "
            "than the slide",
            remedy="write session_window(ts, '5 minutes')"
            if session
            else "write CUMULATE(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)"
            if cumulates
            else "write window(ts, '10 minutes', '5 minutes')",
        )
    if length > (step or slide) * MOST_WINDOWS:
        raise QueryError(
            "bad-window",
            f"every row would be in more than {MOST_WINDOWS} windows",
            remedy="give a longer step" if step else "give a longer slide",
        )
    return TimeWindow(column, length, slide, start, session, step), coerce(time, TIMESTAMP)


def _micros(node: Node) -> int:
    text = None
    if isinstance(node, exp.Literal) and node.is_string:
        text = str(node.this)
    elif isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        text = str(node.this.this) + (f" {unit.name}" if unit is not None else "")
    if text is None:
        raise QueryError(
            "bad-window", f"{describe(node)} is not a duration", remedy="write e.g. '10 minutes'"
        )
    return parse_duration(text.lower())

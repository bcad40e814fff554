"""Clock (event time) of a view: lower bound of the window column in all future joined rows.

A future joined row has a last-arriving member ``j``, whose event time is not below its stream's
watermark. And ``tau_j - tau_i <= D_ij`` for the member ``i`` whose event time the window column is.
So ``tau_i >= min_j (watermark_j - D_ij)``, with ``D_ii = 0``. If a stream has no watermark, or a
time bound is infinite, there is no clock, and groups are kept for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.joins import StreamName
from anabranch_contract.queries.outer_joins import part_number
from anabranch_runtime.tables.joins.outer import FIRST


def clock_of(query: QuerySpec, ruleset: Ruleset, marks: Mapping[str, int]) -> int | None:
    """Return the clock of a query's view in microseconds for the watermarks ``marks``, or None.

    For an outer join, it is the watermark of the right input, which is compared with the deadlines
    of left rows; for an outer join with a table, which has no deadlines, it is the clock of the
    left rows. A kept outer join, whose results may change at any time, has no clock. The clock of a
    union is the least clock of its branches.
    """
    if query.united:
        clocks = [_view_clock(one, ruleset, marks) for one in branches(query, ruleset)]
        known = [clock for clock in clocks if clock is not None]
        return min(known) if len(known) == len(clocks) else None
    if query.outer is not None:
        if query.outer.kept:
            return None
        if not query.outer.look_ups:
            return marks.get(query.outer.partner)
        left = next(q for q in ruleset.queries if q.left_of == query.id and not part_number(q.id))
        query = replace(left, view=query.view, outer=query.outer)
    return _view_clock(query, ruleset, marks)


def branches(query: QuerySpec, ruleset: Ruleset) -> list[QuerySpec]:
    """Return the branches of a union; of any other query, the query itself."""
    if not query.united:
        return [query]
    return [one for one in ruleset.queries if one.registered == query.id]


def _view_clock(query: QuerySpec, ruleset: Ruleset, marks: Mapping[str, int]) -> int | None:
    timed = timed_by(query, ruleset)
    if timed is None:
        return None
    i, streams = timed[0], _streams(query, ruleset)
    found = []
    # A looked-up tuple is never the last member of a result to arrive.
    for j in query.completing:
        stream = streams[j]
        bound = 0 if i == j else query.retention[i][j]
        mark = marks.get(stream)
        if mark is None or bound is None:
            return None
        found.append(mark - bound)
    # A time bound that is subtracted may lead beyond the range of event times.
    return max(min(found), FIRST)


def timed_by(query: QuerySpec, ruleset: Ruleset) -> tuple[int, StreamName] | None:
    """Return the alias (its index) and stream whose event time is the view's window column; None
    without windows, or if the window column is no stream's event time."""
    window = None if query.view is None else query.view.window
    if window is None:
        return None
    columns = {o.name: o.expr for o in query.projection}
    expr = columns.get(window.column)
    if query.outer is not None and query.outer.look_ups:
        shown = next(o.expr for o in query.outer.projection if o.name == window.column)
        expr = columns.get(shown.name) if isinstance(shown, Column) else None
    labels = [label for _, label, _ in query.members]
    if not isinstance(expr, Column) or expr.alias not in labels:
        return None
    times = {s.name: s.event_time for s in ruleset.streams}
    i = labels.index(expr.alias)  # type: ignore[arg-type]
    stream = _streams(query, ruleset)[i]
    return (i, stream) if times[stream] == expr.name else None


def _streams(query: QuerySpec, ruleset: Ruleset) -> list[StreamName]:
    """Return the stream of each member of the join that is the view's input."""
    stream_of = {r.id: r.stream for r in ruleset.relations}
    return [stream_of[relation] for _, _, relation in query.members]

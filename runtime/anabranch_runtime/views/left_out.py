"""Groups of a view that may lack joined rows because of load shedding: time spans, and keys.

Withheld joined rows stay missing unless a catch-up computes them later. Their values of the view's
window column lie between the view's clock before the batch and the greatest event time so far, so
windows outside this span are complete. If tuples are sampled by the rank (hash) of a key and the
view groups by this key, groups with ranks below the sampling rates are complete too. All other
groups may lack rows.

The manifest has spans and keys (``Activation.left_out``), so a replayed batch has the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.plans.rations import Ranking, Ration
from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.protocol.activations import Activation, LeftOut
from anabranch_contract.queries.expressions import Column, Expr
from anabranch_contract.queries.joins import QueryId
from anabranch_contract.queries.scaling import scalable
from anabranch_contract.queries.views import WINDOW_END, WINDOW_START, View
from anabranch_runtime.epochs.retention import clocks
from anabranch_runtime.index.ranks import limit, ranks
from anabranch_runtime.state.manifest import State
from anabranch_runtime.views.clock import clock_of, timed_by

#: Maximum number of spans per view; if there are more, the two oldest are merged.
MOST = 32


class GroupKnowledge(IntEnum):
    """Completeness of a group's aggregates, from complete to unknown."""

    WHOLE = 0
    #: Estimates with error bounds.
    BOUNDED = 1
    #: Estimates without error bounds.
    UNBOUNDED = 2
    UNKNOWN = 3


def sampled(
    ruleset: Ruleset, rations: Iterable[Ration], owing: Collection[QueryId]
) -> frozenset[str]:
    """Return the queries whose results need columns with inclusion probabilities: they have rations
    below 1, and a view with aggregates that can be estimated.

    Args:
        owing: queries to skip, as a catch-up will compute their withheld results.
    """
    rationed = {r.query for r in rations if r.share < 1}.difference(owing)
    return frozenset(
        str(q.id)
        for q in ruleset.queries
        if q.id in rationed and q.view is not None and not q.has_outer_join and scalable(q.view)
    )


def note_left_out(
    before: State,
    after: State,
    ruleset: Ruleset,
    rations: Sequence[Ration],
    owing: Collection[QueryId],
) -> dict[str, Activation]:
    """Return query -> its activation in the state ``after`` a batch, with the spans of joined rows
    that the batch has withheld permanently; ``before``: the state at the batch's start.

    Args:
        owing: as in :func:`sampled`.
    """
    queries = after.queries
    if not rations:
        return queries
    for query in ruleset.queries:
        own = [r for r in rations if r.query == query.id and r.share < 1]
        known = queries.get(str(query.id))
        if not own or known is None or query.view is None or query.id in owing:
            continue
        span = _left_out_span(query, query.view, own, before, after, ruleset)
        # The spans as of before the batch, as ``known`` includes the batch's spans already.
        gaps = before.queries[str(query.id)].gaps
        queries = {**queries, str(query.id): replace(known, left_out=with_gap(gaps, span))}
    return queries


def standing(view: View, gaps: Iterable[LeftOut], rows: pa.Table) -> NDArray[np.int8]:
    """Return the :class:`GroupKnowledge` of each of the view's ``rows``, given spans ``gaps``."""
    found = np.full(rows.num_rows, GroupKnowledge.WHOLE, np.int8)
    names = dict(zip((name for name, _ in view.group_keys), view.identity, strict=False))
    for gap in gaps:
        met = _meets(view, gap, rows, names)
        worst = GroupKnowledge.BOUNDED
        if gap.universe:
            worst = GroupKnowledge.UNBOUNDED
            if gap.key is not None and gap.key[0] in names:
                met &= ~_kept(gap.key, gap.share, rows[names[gap.key[0]]])
                # Rows kept because of other keys give no estimate for the withheld keys.
                worst = GroupKnowledge.UNKNOWN
        if gap.share == 0:
            worst = GroupKnowledge.UNKNOWN
        found[met] = np.maximum(found[met], worst)
    return found


def _left_out_span(
    query: QuerySpec, view: View, own: Sequence[Ration], before: State, after: State, rules: Ruleset
) -> LeftOut:
    low = high = None
    timed = None if query.has_outer_join else timed_by(query, rules)
    if timed is not None:
        low = clock_of(query, rules, clocks(before))
        stream = after.streams.get(timed[1])
        reach = () if stream is None else (stream.newest, stream.floor)
        high = max((t for t in reach if t is not None), default=None)
    ranked = {r.start: r.ranking.columns[0] for r in own if not r.ranking.by_batch}
    exprs = _read_by(query)
    key = next(
        (
            (name, ranked[expr.alias][1])  # type: ignore[index]
            for name, _ in view.keys
            if isinstance(expr := exprs.get(name), Column)
            and ranked.get(expr.alias, ("", ""))[0] == expr.name  # type: ignore[call-overload]
        ),
        None,
    )
    return LeftOut(low, high, min(r.share for r in own), bool(ranked), key)


def _read_by(query: QuerySpec) -> dict[str, Expr]:
    """Return view's input column -> expression over joined relations. Over an outer join, only
    columns of left rows are included, as the others are NULL for rows without a partner."""
    exprs = {o.name: o.expr for o in query.projection}
    if query.outer is None:
        return exprs
    left = {name for name, _ in query.outer.left}
    return {
        o.name: exprs[o.expr.name]
        for o in query.outer.projection
        if isinstance(o.expr, Column) and o.expr.name in left
    }


def with_gap(known: tuple[LeftOut, ...], new: LeftOut) -> tuple[LeftOut, ...]:
    """Add the span ``new`` to ``known``; spans are merged where that loses no information."""
    for n, old in enumerate(known):
        if (old.universe, old.key) != (new.universe, new.key):
            continue
        one_time = (old.low, old.high) == (new.low, new.high)
        if one_time or (old.share == new.share and _overlap(old, new)):
            return (*known[:n], _fused(old, new), *known[n + 1 :])
    found = (*known, new)
    return found if len(found) <= MOST else (_fused(found[0], found[1]), *found[2:])


def _fused(one: LeftOut, other: LeftOut) -> LeftOut:
    """Merge two spans into one that includes all groups of both."""
    low = None if one.low is None or other.low is None else min(one.low, other.low)
    high = None if one.high is None or other.high is None else max(one.high, other.high)
    alike = (one.universe, one.key) == (other.universe, other.key)
    share = min(one.share, other.share) if alike else 0.0
    return LeftOut(low, high, share, one.universe and alike, one.key if alike else None)


def _overlap(one: LeftOut, other: LeftOut) -> bool:
    def before(first: LeftOut, second: LeftOut) -> bool:
        return first.high is not None and second.low is not None and first.high < second.low

    return not before(one, other) and not before(other, one)


def _meets(view: View, gap: LeftOut, rows: pa.Table, names: Mapping[str, str]) -> NDArray[np.bool_]:
    """Return the mask of a view's rows whose windows overlap the span ``gap``."""
    met = np.ones(rows.num_rows, np.bool_)
    if view.window is None or not rows.num_rows:
        return met
    if gap.high is not None:
        met &= _micros(rows[names[WINDOW_START]]) <= gap.high
    if gap.low is not None:
        met &= _micros(rows[names[WINDOW_END]]) > gap.low
    return met


def _micros(times: pa.ChunkedArray) -> NDArray[np.int64]:
    found: NDArray[np.int64] = times.cast(pa.int64()).to_numpy()
    return found


def _kept(key: tuple[str, str], share: float, values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return the mask of key values that are kept by sampling at the rate ``share``."""
    ranking = Ranking((key,), by_batch=False)
    plain = values.combine_chunks()
    return ranks(ranking, lambda _: plain, len(plain), 0) < limit(share)

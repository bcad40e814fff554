"""Activations of queries (first batch, visible tuples, result counts, failure); rows of views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from anabranch_contract.body import Body
from anabranch_contract.codec import Message, Row
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX, JoinKind, branch_id
from anabranch_contract.queries.scaling import PartialMark


@dataclass(frozen=True, slots=True)
class ViewRows(Message):
    """The first rows of a view, as of one version of it, in the view's order.

    Attributes:
        total: number of rows of the view, not only of ``rows``.
        rows: the first rows, as JSON objects.
        batch: the last batch whose joined rows the view includes; -1 before the first.
        withheld, owed, blind, completeness: as in :class:`Activation`, for the joined rows up to
            ``batch``.
        partial: the view's columns and clauses that are inexact because joined rows are missing.
        whole: for each row, whether its group lacks no joined row; None: unknown. Empty if no
            joined row of the view is missing.
        scaled: for each row, a JSON object: column -> estimate and error (``semantics.md``, "Views
            over a part"). Empty if no joined row is missing, or if ``unscaled`` gives a reason.
    """

    version: int
    total: int
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    batch: int
    withheld: float = 0.0
    owed: float = 0.0
    blind: int = 0
    completeness: float = 1.0
    partial: tuple[PartialMark, ...] = ()
    whole: tuple[bool | None, ...] = ()
    scaled: tuple[str, ...] = ()
    unscaled: PartialMark | None = None


#: A closed matrix of time bounds in microseconds (``queries.joins.JoinQuery.bounds``).
Retention = tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Visibility:
    """The first batch and the least event time (microseconds) of an alias's visible tuples."""

    batch: int
    event_time: int | None


@dataclass(frozen=True, slots=True)
class Failure(Body):
    """A query's failure at run time: one of its expressions could not be evaluated.

    Attributes:
        code: code of the error.
        message: the fault, as a sentence.
        expression: the text of the expression that failed; empty if unknown.
        batch: the batch of the failure. The query has no results of this batch; its results of
            earlier batches stay valid.
        remedy: remedy for the fault; empty: unknown.
    """

    code: str
    message: str
    expression: str
    batch: int
    remedy: str = ""


class LeftOut(Row, frozen=True):
    """A span of event time in which a view lacks joined rows for good.

    Attributes:
        low, high: least and greatest time, in microseconds, that the view's window column may have
            in the missing rows; None: unbounded.
        share: the least ration in the span (share of tuples that probed); 0: no estimate.
        universe: whether the same keys were withheld in all batches (``plans.rations.Ranking``).
        key: (name, key type) of the grouping column by which ``universe`` ranks tuples; None: it
            ranks by no grouping column.
    """

    low: int | None = None
    high: int | None = None
    share: float = 0.0
    universe: bool = False
    key: tuple[str, str] | None = None


class PastStatus(StrEnum):
    """Status of results over tuples from before a query's activation: being emitted, all emitted,
    or no longer computable."""

    PENDING = "pending"
    EMITTED = "emitted"
    GIVEN_UP = "given-up"


#: Statuses from best to worst; a union's past has the worst status of its branches.
_WORSE = (PastStatus.EMITTED, PastStatus.PENDING, PastStatus.GIVEN_UP)


class PastResults(Row, frozen=True):
    """Results of a query over tuples from before its activation, if requested.

    Attributes:
        results: number of results of the past emitted so far.
        rows: number of stored rows still to be processed; None: processing has not begun.
    """

    status: PastStatus = PastStatus.PENDING
    results: int = 0
    rows: int | None = None

    @property
    def pending(self) -> bool:
        """Whether the query will emit more results of the past."""
        return self.status is PastStatus.PENDING


@dataclass(frozen=True, slots=True)
class Activation(Message):
    """The activation of a query by the runtime: its visible tuples, and its results since then.

    Attributes:
        activated_batch: first batch whose arrivals can complete a result.
        expired_batch: first batch whose arrivals can't complete a result; None while active.
        visible_from: alias -> its first visible tuples.
        complete_from: event time in microseconds from which on no result lacks a tuple of the past.
            None: no result lacks any (``complete`` is ``"always"``), or results may lack some for
            ever, since no window limits which tuples join (``"never"``).
        results: number of results emitted so far.
        failure: the failure in batch ``expired_batch``; None: no failure.
        retention: the query's closed matrix of time bounds in microseconds
            (``ruleset.QuerySpec.retention``).
        earlier: the previous activations, oldest first. Each ended, with its final ``results``,
            when a stream's ttl changed the matrix. Their own ``earlier`` is empty.
        withheld: number of results that rations have withheld so far, estimated from emitted ones:
            with ration p there are 1/p − 1 withheld results for each emitted one.
        blind: number of (last-arriving alias, batch) pairs with ration 0, whose withheld results
            can't be estimated.
        owed: number of withheld results to be computed later, with the same estimate; not included
            in ``withheld`` or ``blind``. ``caught_up``: number of such results that have been
            computed; they are included in ``results``.
        left_out: for a view, the spans of event time in which joined rows are missing for good.
        past: progress of the results of the past, if the query emits them.
        missed: alias -> number of earlier tuples of its stream that were not stored and may be
            missing in results.
        before: stream -> number of its tuples that arrived before the activation, if any; empty
            unless another query reads this one and it emits no results of the past.
    """

    activated_batch: int
    visible_from: dict[str, Visibility]
    complete_from: int | None = None
    complete: str = "always"
    expired_batch: int | None = None
    results: int = 0
    failure: Failure | None = None
    retention: Retention = ()
    earlier: tuple[Activation, ...] = ()
    withheld: float = 0.0
    blind: int = 0
    owed: float = 0.0
    caught_up: int = 0
    left_out: tuple[LeftOut, ...] = ()
    past: PastResults | None = None
    missed: dict[str, int] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)

    @property
    def completeness(self) -> float:
        """Estimated emitted share of all results so far; ``blind`` ones are not counted."""
        everything = self.results + self.withheld + self.owed
        return self.results / everything if everything else 1.0

    @property
    def incomplete(self) -> bool:
        """Whether rations have ever withheld results of the query."""
        return bool(self.withheld or self.owed or self.blind or self.caught_up or self.left_out)

    @property
    def gaps(self) -> tuple[LeftOut, ...]:
        """``left_out``; one unbounded span if results were withheld without a recorded span."""
        if not self.left_out and (self.withheld or self.blind):
            return (LeftOut(),)
        return self.left_out


class LeftRows(Row, frozen=True):
    """Counts of an outer join's left rows whose deadline has passed.

    Attributes:
        given: number of results: rows without a match; for a semi join, rows with a match.
        missing: estimated number of results lost to rations: each result whose row could be decided
            with probability ``c`` accounts for ``1/c − 1`` missing ones.
        undecided: number of rows not emitted because their pairs may have been withheld.
    """

    kind: JoinKind
    given: int = 0
    missing: float = 0.0
    undecided: int = 0

    def plus(self, more: LeftRows) -> LeftRows:
        """Return the field-wise sum of two counts of an outer join's left rows."""
        return LeftRows(
            self.kind,
            self.given + more.given,
            self.missing + more.missing,
            self.undecided + more.undecided,
        )


def counted(
    activations: Mapping[str, Activation], name: str, left_rows: LeftRows | None
) -> Activation | None:
    """Return the activation of the query ``name``. An outer join gets the numbers of its results
    instead of the numbers of matched pairs, which the runtime counts.

    Args:
        activations: join -> its activation; the left rows of an outer join are a join, too.
        left_rows: counts of an outer join's left rows. If they are unknown (None), so are its
            numbers of results, and None is returned.
    """
    pairs, left = activations.get(name), activations.get(name + LEFT_SUFFIX)
    if pairs is None or left is None:
        return pairs
    return None if left_rows is None else of_outer_join(pairs, left, left_rows)


def of_union(activations: Mapping[str, Activation], name: str, branches: int) -> Activation | None:
    """Return the activation of a union, whose visible tuples, missed tuples, completeness and past
    results are combined from its ``branches`` branches."""
    ids = (branch_id(name, number) for number in range(1, branches + 1))
    found = [one for branch in ids if (one := activations.get(branch)) is not None]
    if len(found) < 2:
        return activations.get(name)
    complete, complete_from = least_complete(found)
    past = [one.past for one in found if one.past is not None]
    status = max((p.status for p in past), key=_WORSE.index, default=None)
    rows = [p.rows for p in past]
    return replace(
        found[0],
        visible_from={a: v for one in found for a, v in one.visible_from.items()},
        missed={a: n for one in found for a, n in one.missed.items()},
        before={s: n for one in found for s, n in one.before.items()},
        complete=complete,
        complete_from=complete_from,
        past=None
        if status is None
        else PastResults(
            status,
            sum(p.results for p in past),
            None if None in rows else sum(n or 0 for n in rows),
        ),
    )


def least_complete(found: Sequence[Activation]) -> tuple[str, int | None]:
    """Return ``complete`` and ``complete_from`` of an activation that combines all ``found``."""
    complete = max((one.complete for one in found), key=("always", "from", "never").index)
    ends = [one.complete_from for one in found if one.complete_from is not None]
    return complete, max(ends) if complete == "from" else None


def of_outer_join(pairs: Activation, left: Activation, left_rows: LeftRows) -> Activation:
    """Return ``pairs`` with the numbers of an outer join's results (the input of its view, if any).

    Emitted left rows are results, and so are pairs in the case of a left join. The share of results
    among undecided rows is assumed to be at least their share among decided rows. Before the first
    result no share is known, and all withheld or undecided left rows count as withheld results.
    """
    given, undecided = left_rows.given, left_rows.undecided
    found = given + left_rows.missing
    others = max(left.results - undecided, given)
    least = undecided * given / others if given else undecided + left.withheld
    missing = max(left_rows.missing, least)
    # Assume the same share of results among owed left rows as among the others.
    share = min(found / (left.results + left.withheld or 1.0), 1.0) if found else 1.0
    own = replace(
        pairs, results=given, withheld=missing, owed=left.owed * share, caught_up=left.caught_up
    )
    if left_rows.kind is not JoinKind.LEFT:
        return own
    return replace(
        own,
        results=pairs.results + own.results,
        withheld=pairs.withheld + own.withheld,
        owed=pairs.owed + own.owed,
        caught_up=pairs.caught_up + own.caught_up,
    )

"""Activations of queries: their first batch, what they see, failures, and rows of views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from anabranch_contract.body import Body
from anabranch_contract.codec import Message, Row
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX, JoinKind
from anabranch_contract.queries.scaling import PartialMark


@dataclass(frozen=True, slots=True)
class ViewRows(Message):
    """The rows of a view as of a version, in its order.

    Attributes:
        total: how many there are; ``rows`` are the first of them.
        rows: as JSON objects.
        batch: the last one whose joined rows are in it, -1 before the first.
        withheld, owed, blind, completeness: of the joined rows as of that batch, as in
            :class:`Activation`.
        partial: what does not hold for all joined rows, where some are missing.
        whole: of each row whether no joined row of its group is missing; None: not known. Empty
            where none is missing of any.
        scaled: of each row a JSON object: column -> value and error (``semantics.md``, "Views over
            a part"); empty where none is missing, or for the reason ``unscaled``.
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


#: A closed matrix of time bounds in microseconds (``model.JoinQuery.bounds``).
Retention = tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Visibility:
    """From when on an alias's stored tuples are visible: batch, and event time in microseconds."""

    batch: int
    event_time: int | None


@dataclass(frozen=True, slots=True)
class Failure(Body):
    """Why a query has failed at run time: an expression of its own that can't be evaluated.

    Attributes:
        code, message, remedy: as the error had them.
        expression: the text of what failed; empty where it is unknown.
        batch: the batch in which it did; of it the query has no results, and results of earlier
            batches stand.
    """

    code: str
    message: str
    expression: str
    batch: int
    remedy: str = ""


class LeftOut(Row, frozen=True):
    """A span of event time in which joined rows of a view have been withheld for good.

    Attributes:
        low, high: least and greatest time that the column of the view's window may have in these
            rows, microseconds; None: unbounded.
        share: the least share that a goal was given; 0: the withheld rows can't be estimated.
        universe: whether the same keys were withheld in all batches (``plans.rations.Ranking``).
        key: (name, key type) of the grouping column that ranks under ``universe``; None: no
            grouping column does.
    """

    low: int | None = None
    high: int | None = None
    share: float = 0.0
    universe: bool = False
    key: tuple[str, str] | None = None


class PastStatus(StrEnum):
    """``pending``, until all of it is ``emitted``, or it can't be any more: ``given-up``."""

    PENDING = "pending"
    EMITTED = "emitted"
    GIVEN_UP = "given-up"


class PastResults(Row, frozen=True):
    """Results of a query over tuples from before its activation, if requested.

    Attributes:
        results: emitted so far.
        rows: stored rows still to be processed; None: not begun.
    """

    status: PastStatus = PastStatus.PENDING
    results: int = 0
    rows: int | None = None

    @property
    def pending(self) -> bool:
        """Whether more results of the past will come."""
        return self.status is PastStatus.PENDING


@dataclass(frozen=True, slots=True)
class Activation(Message):
    """The terms on which the runtime activated a query, and its results since.

    Attributes:
        activated_batch: first batch whose arrivals can complete a result.
        expired_batch: first batch whose arrivals no longer can; None while active.
        visible_from: per alias.
        complete_from: microseconds; None: complete from the first answer (``complete``
            ``"always"``) or never over full history that was missed (``"never"``).
        results: results emitted so far.
        failure: the reason of a failure in batch ``expired_batch``; None: no failure.
        retention: the query's closed matrix in microseconds (``ruleset.QuerySpec.retention``).
        earlier: the activations before this one, oldest first: each ended, with its final
            ``results``, when a stream's ttl changed the matrix. Their own ``earlier`` is empty.
        withheld: results that rations have withheld so far, estimated from the kept ones: a goal
            with ration p has 1/p − 1 withheld results for each kept one.
        blind: number of times that a goal had ration 0 in a batch, which allows no estimate.
        owed: withheld results still to be made good, with the same estimate; not included in
            ``withheld`` or ``blind``. ``caught_up``: results made good, included in ``results``.
        left_out: of a query with a view, where joined rows have been withheld for good.
        past: of a query that emits results of the past as well.
        missed: alias -> tuples of its stream from before its visibility that were not stored and
            may be missing in results.
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

    @property
    def completeness(self) -> float:
        """The share of the results that is there, estimated; ``blind`` is not in it."""
        everything = self.results + self.withheld + self.owed
        return self.results / everything if everything else 1.0

    @property
    def incomplete(self) -> bool:
        """Whether rations have ever withheld results."""
        return bool(self.withheld or self.owed or self.blind or self.caught_up or self.left_out)

    @property
    def gaps(self) -> tuple[LeftOut, ...]:
        """``left_out``; everything where withheld results have no noted span."""
        if not self.left_out and (self.withheld or self.blind):
            return (LeftOut(),)
        return self.left_out


class LeftRows(Row, frozen=True):
    """Counts of an outer join's left rows after their deadlines.

    Attributes:
        given: results: rows without partners; of a semi join, rows with one.
        missing: additional results without rations, estimated: a row with the probability ``c`` of
            being decided stands for ``1/c − 1`` missing ones.
        undecided: rows without a result, since pairs of them may have been withheld.
    """

    kind: JoinKind
    given: int = 0
    missing: float = 0.0
    undecided: int = 0

    def plus(self, more: LeftRows) -> LeftRows:
        """The sum of both counts."""
        return LeftRows(
            self.kind,
            self.given + more.given,
            self.missing + more.missing,
            self.undecided + more.undecided,
        )


def counted(
    activations: Mapping[str, Activation], name: str, left_rows: LeftRows | None
) -> Activation | None:
    """The activation of a query with the counts of its results.

    Args:
        left_rows: of an outer join; None: nothing is known of them, so neither of the query.
    """
    pairs, left = activations.get(name), activations.get(name + LEFT_SUFFIX)
    if pairs is None or left is None:
        return pairs
    return None if left_rows is None else of_outer_join(pairs, left, left_rows)


def of_outer_join(pairs: Activation, left: Activation, left_rows: LeftRows) -> Activation:
    """``pairs`` with the counts of an outer join's results, below a view if there is one: pairs are
    results of a left join only, left rows once they are emitted.

    The share of results among undecided rows is taken to be at least the share among the others.
    Before the first result nothing can be estimated, and all left rows that were withheld or are
    undecided count as withheld results.
    """
    given, undecided = left_rows.given, left_rows.undecided
    found = given + left_rows.missing
    others = max(left.results - undecided, given)
    least = undecided * given / others if given else undecided + left.withheld
    missing = max(left_rows.missing, least)
    # As many of the left rows that are owed will be results as of the others.
    share = min(found / (left.results + left.withheld or 1.0), 1.0) if found else 1.0
    own = replace(
        pairs,
        results=given,
        withheld=missing,
        owed=left.owed * share,
        caught_up=left.caught_up,
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

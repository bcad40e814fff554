"""Bodies of ``/v1/epochs/{number}/revisions``; the service stores records in the same form."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from anabranch_contract.rest.documents import Closed, Document, Open, Time


class RevisionReason(StrEnum):
    """Reason of a revision: cheaper probe orders, the previous epoch's orders, or a return from
    orders that turned out to cost more."""

    CHEAPER = "cheaper"
    CARRIED_OVER = "carried-over"
    TAKEN_BACK = "taken-back"


class GainRecord(Closed):
    """Measured effect of a change of probe orders.

    Attributes:
        before, after: cost per arriving tuple (tuples sent and matches found; CPU seconds under the
            objective ``seconds``) in the periods before and after the change, across epochs.
        gain: the fraction of the cost that was saved; negative: the changed orders cost more.
        baseline: the ruleset with the orders before the change.
        predicted: the predicted saving of the same change, as a fraction. The change comprises
            several revisions if those in between ran for less than two periods. None: unknown.
        periods: number of periods with the new orders.
        grown: relative growth of the stores in the meantime, which adds matches per tuple.
        lost: whether the new orders cost more than noise and growth can explain; if so, they are
            not tried again until a statistic drifts (changes suddenly).
    """

    before: float
    after: float
    gain: float
    periods: int
    baseline: str = ""
    predicted: float | None = None
    grown: float = 0.0
    lost: bool = False


class RevisionRecord(Closed):
    """A published revision of a ruleset.

    Attributes:
        epoch: the epoch of the ruleset. ``revision``: number of the revision. ``revises``: number
            of the revision that it replaces; 0: the ruleset with which the epoch began.
        published_at: time of its publication.
        reason: reason of its publication.
        plan_ms: time taken to plan it, in milliseconds.
        method: search that found its plan; empty: no search was needed.
        digest: digest of its ruleset; empty: unknown.
        next_batch: the first batch after the measurements on which the revision is based.
        baseline: the ruleset (epoch, or ``epoch.revision``) with which its cost is compared: the
            one that ran during these measurements or, if the queries differ, the replaced one.
        cost, running_cost: cost of its plan, and of the baseline's plan, under the same statistics.
        predicted: the expected saving, as a fraction of ``running_cost``.
        closed: stores of intermediate results that the revision drops.
        unindexed: stores probed by a key without an index, with the key.
        drifted: at most ten sudden changes of statistics that triggered the revision before the end
            of a period; empty: it was made at the end of a period.
        measured: its measured effect, known after two periods with its orders; None before. It is
            relative to the same baseline or, if that ran for less than two periods, to an older
            one.
        undoes: for ``taken-back``, the measured effect of the replaced orders.
        rationed: whether both costs take the rations (load shedding) in force into account.
    """

    epoch: int
    revision: int
    revises: int
    published_at: Time
    reason: Open[RevisionReason]
    next_batch: int
    cost: float
    running_cost: float
    predicted: float
    baseline: str = ""
    closed: tuple[str, ...] = ()
    unindexed: tuple[str, ...] = ()
    plan_ms: float = 0.0
    method: str = ""
    digest: str = ""
    drifted: tuple[str, ...] = ()
    measured: GainRecord | None = None
    undoes: GainRecord | None = None
    rationed: bool = False


class RevisionList(Document):
    """The revisions of an epoch's ruleset.

    Attributes:
        items: the revisions, oldest first.
    """

    items: list[RevisionRecord] = Field(default_factory=list)

"""Bodies of ``/v1/epochs/{number}/revisions``; the service keeps these records as they are."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from anabranch_contract.rest.documents import Closed, Document, Open, Time


class RevisionReason(StrEnum):
    """Why a revision was published."""

    CHEAPER = "cheaper"
    CARRIED_OVER = "carried-over"
    TAKEN_BACK = "taken-back"


class GainRecord(Closed):
    """The measured effect of a change of orders.

    Attributes:
        before, after: tuples sent and matches found (or CPU seconds, where costs are seconds) per
            arriving tuple, in the periods before the change and in those by the new orders, of
            whichever epochs.
        gain: the share that was saved; negative: it costs more.
        periods: by the new orders.
        grown: share by which the stores had grown meanwhile, so that a tuple meets more rows.
        lost: whether it costs more than noise and growth explain, so that the orders are not tried
            again until something drifts.
    """

    before: float
    after: float
    gain: float
    periods: int
    grown: float = 0.0
    lost: bool = False


class RevisionRecord(Closed):
    """A published revision of a ruleset.

    Attributes:
        epoch: whose ruleset is revised. ``revision``: its number. ``revises``: the number of the
            one before; 0: the ruleset with which the epoch began.
        next_batch: the first batch after the measurements that it answers.
        cost, running_cost: of the plan, and of the one that ran, under the same statistics.
        predicted: the expected saving, as a share of ``running_cost``.
        closed: stores of intermediate results that are no longer kept.
        unindexed: stores probed by a key without an index, with the key.
        drifted: at most ten sudden changes that caused the early measurements that it answers;
            empty: the measurements came at a period's end.
        measured: after two periods with its orders; None before.
        undoes: for ``taken-back`` the measured effect of the orders that it replaces.
        rationed: whether both costs are under the rations in force.
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
    """The revisions of an epoch's ruleset, oldest first."""

    items: list[RevisionRecord] = Field(default_factory=list)

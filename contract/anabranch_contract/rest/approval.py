"""Bodies of ``/v1/plan/held``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anabranch_contract.rest.documents import Document, Open, Time
from anabranch_contract.rest.epochs import EpochDiffOut

#: ``approved`` until the next boundary, at which it is published.
HeldState = Literal["waiting", "approved", "refused"]


class HeldPlanOut(Document):
    """A plan that changes what runs, and waits until somebody approves or refuses it.

    ``since`` is when a plan began to wait, ``proposed_at`` when this one was proposed last, for
    ``epoch``. ``waiting`` names the queries that can't begin before it is approved. ``change`` is
    how it differs from the newest published plan, both priced by the newest statistics.
    """

    state: Open[HeldState]
    version: str = Field(description="Its ETag, for If-Match.")
    since: Time
    proposed_at: Time
    epoch: int
    waiting: list[str]
    cost_before: float | None
    cost_after: float | None
    note: str = Field(description="What became of a plan that was approved before; often empty.")
    change: EpochDiffOut

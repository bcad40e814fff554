"""Bodies of ``/v1/epochs``."""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, BaseModel, Field

from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_service.registry.records import EpochRecord


class EpochOut(EpochRecord):
    """A published epoch; ``first_batch`` is null until the runtime has started it."""

    first_batch: int | None
    footprint: dict[str, Any] | None = Field(default=None, exclude=True)


class EpochSummary(BaseModel):
    """A line of the epochs' list."""

    epoch: int
    first_batch: int | None
    published_at: AwareDatetime
    optimizer: Optimizer
    objective: Objective
    parallelism: int
    queries: list[str]
    cost: float
    bound: float | None
    gap: float | None
    individual_cost: float | None
    shared_cost: float | None
    solve_ms: float
    method: str
    fallback: str
    switching_cost: float


class EpochList(BaseModel):
    """A page of epochs, newest first; pass ``next_cursor`` as ``cursor``."""

    items: list[EpochSummary]
    next_cursor: str | None


class RuntimeOut(BaseModel):
    """How far the runtime is, as far as the service relays it.

    ``state`` is the last that was heard of it; where there is no heartbeat that is ``stale``.
    ``backfill`` maps stores whose past is being computed to the part that is done.
    ``waiting_tuples`` (about) have arrived and were not read yet, of streams that the runtime reads
    itself; of these the next batch brings ``row_limit`` (null: any number). ``private_bytes`` is
    what the last batch's tasks took of memory for themselves, ``memory_limit`` what that should
    stay below (null: any number). ``unread_pieces`` maps streams to how many parts of their input
    could not be read, ``source_errors`` maps streams that can't be read at present to
    the reason.
    """

    state: str
    stale: bool
    committed: int
    epoch: int
    batch_seconds: float
    processing_seconds: float
    state_bytes: int
    input_tuples: int
    late_tuples: int
    ahead_tuples: int
    exhausted: bool
    error: str | None
    backfill: dict[str, float]
    waiting_tuples: int
    row_limit: int | None
    private_bytes: int
    memory_limit: int | None
    source_errors: dict[str, str]
    unread_pieces: dict[str, int]


class CurrentEpoch(BaseModel):
    """The epoch that the runtime is in, and the published one whose rules it goes by."""

    running: int
    epoch: EpochOut
    runtime: RuntimeOut | None

"""Bodies of ``/v1/batches``."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Document, Time


class PhaseOut(Document):
    """A part of a batch's time."""

    name: str
    milliseconds: int


class BatchOut(Document):
    """A batch that has been committed.

    ``phases`` add up to ``milliseconds``: ``begin`` (before Spark's job), what the ``slowest`` of
    the ``tasks`` did (``read``, ``store``, ``wait`` for other tasks, ``probe``, ``catch-up``,
    ``write``, ``backfill``, ``upload``), ``spark`` (the rest of the job: starting tasks, taking
    their reports), ``commit``. ``skew`` is the work of the slowest task over that of a task on
    average, waiting left out; null where none did anything.
    """

    batch: int
    epoch: int
    ruleset: str = Field(description="Epoch of the ruleset, with the number of its revision.")
    committed_at: Time
    milliseconds: int
    tuples: int
    results: int
    tasks: int
    slowest: int
    skew: float | None
    phases: list[PhaseOut]


class BatchList(Document):
    """The newest batches, oldest first."""

    items: list[BatchOut]

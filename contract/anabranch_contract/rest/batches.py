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
    average, waiting left out; null where none did anything. ``hosts`` is on how many the tasks were
    that share nothing but an object store (1: they share a state directory); ``sent`` how many
    tuples and stored rows went from one to another, in ``sent_bytes``.
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
    hosts: int = 1
    sent: int = 0
    sent_bytes: int = 0
    phases: list[PhaseOut]


class BatchList(Document):
    """The newest batches, oldest first."""

    items: list[BatchOut]

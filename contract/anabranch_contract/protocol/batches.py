"""Reports of the newest batches: their durations by phase, their input and results."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch_contract.codec import Message

#: Number of batch reports kept in Redis.
BATCHES_KEPT = 200
#: The phases of a task in a batch, in order; in ``wait`` it waits for other tasks.
PHASES = ("read", "store", "wait", "probe", "catch-up", "write", "backfill", "upload")


@dataclass(frozen=True, slots=True)
class BatchReport(Message):
    """Report of one committed batch. Durations are milliseconds.

    Attributes:
        batch: its number. ``epoch``: its epoch. ``ruleset_epoch``, ``revision``: its ruleset.
        until: time of the commit, seconds since 1970.
        tuples: number of tuples read. ``results``: number of results of all queries; for views,
            of joined rows.
        begin, job, commit: duration of the driver's work before Spark's job, of the job, and of
            the driver's work after it.
        tasks: number of tasks.
        slowest: number of the task that worked longest, without waiting. ``phases``: the durations
            of its phases (:data:`PHASES`); with Spark's own overhead they add up to ``job``.
        work: working time of the slowest task. ``mean_work``: mean working time of all tasks.
            Neither includes waiting.
        hosts: number of hosts that ran tasks; 1 if all tasks share a state directory.
        sent: number of tuples and stored rows sent to other hosts; ``sent_bytes``: their bytes.
    """

    batch: int
    epoch: int
    ruleset_epoch: int
    revision: int
    until: float
    tuples: int
    results: int
    begin: int
    job: int
    commit: int
    tasks: int
    slowest: int
    phases: dict[str, int] = field(default_factory=dict)
    work: int = 0
    mean_work: int = 0
    hosts: int = 1
    sent: int = 0
    sent_bytes: int = 0

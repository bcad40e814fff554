"""Reports of the newest batches: how long each took, and what it spent the time on."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch_contract.codec import Message

#: How many are kept.
BATCHES_KEPT = 200
#: The phases of a task, in this order; ``wait`` is for other tasks.
PHASES = ("read", "store", "wait", "probe", "catch-up", "write", "backfill", "upload")


@dataclass(frozen=True, slots=True)
class BatchReport(Message):
    """One batch that has been committed. Times are milliseconds.

    Attributes:
        batch: its number. ``epoch``: of it; ``ruleset_epoch``, ``revision``: the ruleset that it
            went by.
        until: when it had been committed, seconds since 1970.
        tuples: that it has read. ``results``: of all queries, joined rows of views.
        begin, job, commit: what the driver did before Spark's job, that job, and what it did
            after.
        tasks: how many there were.
        slowest: the number of the task that worked longest, waiting left out. ``phases``: what that
            task did (as in the runtime's task reports); with what Spark itself takes they add up to
            ``job``.
        work: of the slowest task, waiting left out. ``mean_work``: of all tasks on average.
        hosts: on how many the tasks were; 1 where they share a state directory.
        sent: tuples, and stored rows, that went to other hosts; ``sent_bytes``: what that took.
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

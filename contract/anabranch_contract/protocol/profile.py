"""CPU time of a pipeline by purpose (:class:`CpuUse`), such as one store's inserts or one probe
step. Counters only grow, so a reader subtracts two reports.

Every CPU second of the pipeline's processes belongs to exactly one use; seconds that no meter
covers are in the group ``UNATTRIBUTED``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.body import Body
from anabranch_contract.codec import Message


class CpuGroup(StrEnum):
    """Kind of work that uses CPU time; in parentheses the kind of name by which it is divided.

    ``SOURCE``: reading and decoding (stream). ``INSERT``, ``MERGE``: rows and segments written
    (store). ``PROBE``: a probe step (edge). ``SINK``: last checks, projection and encoding (query).
    ``VIEW``: the driver's work for a post-join part or an outer join (query). ``TASK``: other work
    of tasks (phase). ``DRIVER``: the batch thread of the driver (step). ``SPARK``: the JVM of
    Spark. ``SERVICE``: the service and its planner. ``REDIS``: the Redis server. ``UNATTRIBUTED``:
    the rest of the runtime's processes (kind of process).
    """

    SOURCE = "source"
    INSERT = "insert"
    MERGE = "merge"
    PROBE = "probe"
    SINK = "sink"
    VIEW = "view"
    TASK = "task"
    DRIVER = "driver"
    SPARK = "spark"
    SERVICE = "service"
    REDIS = "redis"
    UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, slots=True, order=True)
class CpuUse(Body):
    """CPU seconds of one purpose: a kind of work, for one stream, store, edge or query.

    Attributes:
        group: kind of work.
        name: stream, store, edge, query or another name, depending on the group; empty: work for
            all names of the group, or for names that are not counted separately any more.
        queries: the registered queries that need this work, sorted; empty: none in particular.
        seconds: its CPU seconds.
    """

    group: CpuGroup
    name: str
    queries: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class CpuReport(Message):
    """CPU seconds of the runtime's processes since the start of its run, by purpose.

    Attributes:
        run: the id of the run. ``at``: time of the report, seconds since 1970.
    """

    run: str
    at: float
    uses: tuple[CpuUse, ...] = ()

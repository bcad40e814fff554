"""CPU time of a pipeline by use: counters that only grow, so a reader subtracts two reports.

Every second of a process that runs the pipeline is in exactly one use; the seconds that no meter
covers have a group of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.body import Body
from anabranch_contract.codec import Message


class CpuGroup(StrEnum):
    """Kind of a use of CPU time; the names of its uses are in parentheses.

    ``SOURCE``: reading and decoding (stream). ``INSERT``, ``MERGE``: rows and segments written
    (store). ``PROBE``: a probe step (edge). ``SINK``: last checks, projection and encoding (query).
    ``VIEW``: the driver's work for a post-join part or an outer join (query).
    ``TASK``: other work of tasks (phase). ``DRIVER``: the batch thread of the driver (step).
    ``SPARK``: its JVM. ``SERVICE``: the service and its planner. ``REDIS``: the server.
    ``UNATTRIBUTED``: the rest of the runtime's processes (kind of process).
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
    """CPU seconds of one use.

    Attributes:
        group: kind of the use.
        name: stream, store, edge, query or another name, depending on the group; empty: common to
            all names of the group, or of a name that is no longer counted.
        queries: the registered queries that depend on it, sorted; empty: none in particular.
    """

    group: CpuGroup
    name: str
    queries: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class CpuReport(Message):
    """CPU seconds of the runtime's processes since the start of its run, by use.

    Attributes:
        run: the id of the run. ``at``: time of the report, seconds since 1970.
    """

    run: str
    at: float
    uses: tuple[CpuUse, ...] = ()

"""Bodies of ``/v1/profile``: CPU time of the pipeline by purpose."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from anabranch_contract.protocol.profile import CpuGroup, CpuUse
from anabranch_contract.rest.documents import Document, Time


class ProfileOut(Document):
    """CPU seconds of all processes of the pipeline since their start, by purpose.

    The counters only grow. For a period, subtract two answers with the same ``run`` and
    ``service``.

    Attributes:
        run: id of the run of the runtime; empty: it has not reported yet.
        at: time at which the runtime read its counters.
        service: id of the service process that answers.
        service_at: time of the service's and Redis's counters.
        uses: the uses, with their CPU seconds.
    """

    run: str
    at: Time | None
    service: str
    service_at: Time
    uses: list[CpuUse]

    def seconds_since(self, earlier: ProfileOut) -> float:
        """Return the seconds between two readings of CPU time by the runtime; 0: one is missing."""
        return 0.0 if self.at is None or earlier.at is None else _between(earlier.at, self.at)


class CpuProfile(Document):
    """CPU seconds of the pipeline in a period, by purpose.

    Attributes:
        seconds: length of the period in seconds; 0: since the start of each process.
        cpu: CPU seconds of all processes.
        groups: kind of work -> its CPU seconds.
        queries: query -> its CPU seconds; work for several queries is divided equally among them.
            "": work for no query.
        uses: the uses, with their CPU seconds.
    """

    seconds: float
    cpu: float
    groups: dict[CpuGroup, float]
    queries: dict[str, float]
    uses: list[CpuUse]

    @classmethod
    def between(cls, earlier: ProfileOut, later: ProfileOut) -> CpuProfile:
        """Subtract two answers; seconds of service and Redis are scaled to the runtime's period."""
        seconds = later.seconds_since(earlier)
        factor = seconds / max(_between(earlier.service_at, later.service_at), 1e-9)
        scale = {CpuGroup.SERVICE: factor, CpuGroup.REDIS: factor}
        return cls._of(used_between(earlier.uses, later.uses, scale), seconds)

    @classmethod
    def since_start(cls, found: ProfileOut) -> CpuProfile:
        """Return the CPU seconds of all processes since their start."""
        return cls._of(found.uses, 0.0)

    @classmethod
    def _of(cls, uses: list[CpuUse], seconds: float) -> CpuProfile:
        groups = dict[CpuGroup, float]()
        for use in uses:
            groups[use.group] = groups.get(use.group, 0.0) + use.seconds
        cpu = sum(groups.values())
        return cls(seconds=seconds, cpu=cpu, groups=groups, queries=by_query(uses), uses=uses)


def by_query(uses: Iterable[CpuUse]) -> dict[str, float]:
    """Return CPU seconds by query ("": for none); uses for several queries are divided equally."""
    found: dict[str, float] = {}
    for use in uses:
        for query in use.queries or ("",):
            found[query] = found.get(query, 0.0) + use.seconds / max(len(use.queries), 1)
    return found


def used_between(
    earlier: Iterable[CpuUse], later: Iterable[CpuUse], scale: dict[CpuGroup, float]
) -> list[CpuUse]:
    """Return the differences of two readings of one run's counters, times ``scale`` of their group
    (absent: 1).

    A use that only ``earlier`` has is not counted separately any more. The runtime has added its
    seconds to the unnamed use of the same group, from which they are subtracted here.
    """
    found = {(u.group, u.name, u.queries): u.seconds for u in later}
    for use in earlier:
        key = use.group, use.name, use.queries
        key = key if key in found else (use.group, "", ())
        found[key] = found.get(key, 0.0) - use.seconds
    return [CpuUse(*key, s * scale.get(key[0], 1.0)) for key, s in sorted(found.items()) if s]


def _between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()

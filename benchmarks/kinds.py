"""CPU seconds and memory of a pipeline by kind of process, sampled from the outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

import psutil

from anabranch_client.processes.meter import Sampler, cpu_seconds, resident_bytes, tree


class Kind(StrEnum):
    """Kind of a process of the system.

    ``DRIVER``: the runtime's main Python process. ``WORKERS``: every Python process started by the
    JVM: Spark's daemon, its workers, and the process that plans batches of a source.
    """

    JVM = "jvm"
    DRIVER = "driver"
    WORKERS = "workers"
    SERVICE = "service"
    REDIS = "redis"


#: Name of a process that the pipeline starts -> its kind.
_ROOTS = {"Redis server": Kind.REDIS, "service": Kind.SERVICE, "runtime": Kind.DRIVER}


def kinds_of(roots: Mapping[str, int]) -> dict[Kind, list[psutil.Process]]:
    """Return a pipeline's living processes by kind; ``roots``: name of a process -> its pid."""
    found: dict[Kind, list[psutil.Process]] = {kind: [] for kind in Kind}
    for name, pid in roots.items():
        kind = _ROOTS.get(name, Kind.DRIVER)
        for process in tree([pid]):
            found[kind if kind is not Kind.DRIVER else _of_runtime(process, pid)].append(process)
    return found


def _of_runtime(process: psutil.Process, root: int) -> Kind:
    if process.pid == root:
        return Kind.DRIVER
    try:
        return Kind.WORKERS if process.name().startswith("python") else Kind.JVM
    except psutil.Error:
        return Kind.JVM


def proportional_bytes(processes: list[psutil.Process]) -> int:
    """Return memory with each shared page divided among its processes (PSS); 0 if unknown."""
    total = 0
    for process in processes:
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        for row in text.splitlines():
            if row.startswith("Pss:"):
                total += int(row.split()[1]) * 1024
    return total


class KindMeter(Sampler):
    """Samples the processes of ``roots()`` from :meth:`start` to :meth:`stop`.

    Attributes:
        peak_rss_bytes: greatest sum of resident memory in one sample; a shared page counts once per
            process that maps it. ``peak_pss_bytes``: the same, with shared pages divided.
    """

    def __init__(self, roots: Callable[[], Mapping[str, int]], interval: float = 0.5) -> None:
        super().__init__(interval)
        self._roots = roots
        self._first: dict[Kind, float] = {}
        self._last: dict[Kind, float] = {}
        self.peak_rss_bytes = 0
        self.peak_pss_bytes = 0

    def begin(self) -> None:
        """Set the baseline: CPU time up to now does not count."""
        self._first = dict(self._last)

    @property
    def cpu_by_kind(self) -> dict[str, float]:
        """Kind -> CPU seconds since :meth:`start`, ended children included."""
        return {str(kind): self._last[kind] - self._first.get(kind, 0.0) for kind in Kind}

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all kinds together."""
        return sum(self.cpu_by_kind.values())

    def sample(self) -> None:
        """Measure CPU time and memory of all processes now."""
        found = kinds_of(self._roots())
        for kind, processes in found.items():
            # The CPU time of a process that ends without being waited for is lost, so the greatest
            # sum is kept.
            self._last[kind] = max(self._last.get(kind, 0.0), cpu_seconds(processes))
        everybody = [p for processes in found.values() for p in processes]
        self.peak_rss_bytes = max(self.peak_rss_bytes, resident_bytes(everybody))
        self.peak_pss_bytes = max(self.peak_pss_bytes, proportional_bytes(everybody))

"""CPU seconds and resident memory of process trees, sampled from another process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import psutil


def tree(roots: Iterable[int]) -> list[psutil.Process]:
    """The processes of ``roots`` and all their living descendants."""
    found: dict[int, psutil.Process] = {}
    for pid in roots:
        try:
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):
                found[process.pid] = process
        except psutil.NoSuchProcess:
            continue
    return list(found.values())


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """User and system time of ``processes`` and of the ended children that they have waited for.

    So the sum over a tree misses only ended processes whose parents never waited for them.
    """
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
        total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


def resident_bytes(processes: Iterable[psutil.Process]) -> int:
    """Resident memory in bytes; a shared page counts once per process that maps it."""
    total = 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


class Sampler:
    """Calls :meth:`sample` at :meth:`start`, at :meth:`stop`, and at intervals between them."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def sample(self) -> None:
        """Take one sample."""
        raise NotImplementedError

    def begin(self) -> None:
        """Set the baseline; called just after the first sample."""
        raise NotImplementedError

    def start(self) -> None:
        """Start sampling; earlier CPU time does not count."""
        self.sample()
        self.begin()
        self._thread = threading.Thread(target=self._run, name="process-meter", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and stop; idempotent."""
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        self._thread = None
        self.sample()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self.sample()


class ProcessMeter(Sampler):
    """Samples the process trees of ``roots()``.

    ``cpu_seconds`` is the greatest sum so far and never decreases, although later sums lack the
    time of a process that has ended without being waited for.
    """

    def __init__(self, roots: Callable[[], Iterable[int]], interval: float = 0.25) -> None:
        super().__init__(interval)
        self._roots = roots
        self._first = 0.0
        self._cpu = 0.0
        self._peak = 0

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the trees since :meth:`start`."""
        return self._cpu - self._first

    @property
    def peak_rss_bytes(self) -> int:
        """Greatest sum of resident memory of all samples, in bytes."""
        return self._peak

    def begin(self) -> None:
        """Set the baseline: CPU time up to now does not count."""
        self._first = self._cpu

    def sample(self) -> None:
        """Measure the CPU time and the resident memory of all processes together."""
        processes = tree(self._roots())
        self._cpu = max(self._cpu, cpu_seconds(processes))
        self._peak = max(self._peak, resident_bytes(processes))

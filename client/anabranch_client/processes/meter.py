"""CPU seconds and resident memory of whole process trees, sampled from the outside."""

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
    """User and system time of ``processes`` and of the children that they have waited for.

    An ended child is in its parent's account once it is waited for, so the sum over a tree misses
    only ended processes that were never waited for.
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
    """Resident memory; pages that several processes map count once for each of them."""
    total = 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


class Sampler:
    """Calls :meth:`sample` at intervals from :meth:`start` to :meth:`stop`, and at both ends."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def sample(self) -> None:
        """Look once."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin to count, right after the first sample."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin: CPU time is counted from here on."""
        self.sample()
        self.begin()
        self._thread = threading.Thread(target=self._run, name="process-meter", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and end; calling it again changes nothing."""
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
    """Samples the trees of ``roots()``.

    ``cpu_seconds`` never goes back: a process that dies unattended between two samples takes its
    time with it, so the greatest sum seen is kept.
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
        """The greatest sum of resident memory in any one sample."""
        return self._peak

    def begin(self) -> None:
        """CPU time so far does not count."""
        self._first = self._cpu

    def sample(self) -> None:
        """Take the sums of now."""
        processes = tree(self._roots())
        self._cpu = max(self._cpu, cpu_seconds(processes))
        self._peak = max(self._peak, resident_bytes(processes))

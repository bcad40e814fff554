"""Limit and measurement of a task's private memory.

State is in memory-mapped files, whose pages workers share and the kernel drops under memory
pressure. A worker's private (anonymous) memory grows with the rows of a batch, with the partial
results of running probes, and with intermediate and final results that wait to be written.
Back-pressure (``sources.pacing.back_pressure``) bounds the rows of a batch, and a :class:`Budget`
bounds the rest: work that exhausts it continues in smaller pieces.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from anabranch_runtime.errors import PipelineError

_MIB = 1 << 20
#: Anonymous memory of a worker without work: interpreter, libraries, kernels (70 MiB measured;
#: memory shared by forks is counted for each of them).
BASE = 96 * _MIB
#: Minimum bytes for the work of each task, and the same for merges.
_LEAST = 32 * _MIB
#: Bytes that a process without a limit may have besides its memory in use, and seconds for which it
#: may have twice as much.
_SPARE, _MINUTE = 256 * _MIB, 60.0
#: Minimum seconds between two measurements by :meth:`PrivateMemory.glance`.
_GLANCE = 0.005
#: Bytes per pair (tuple, match) of a probe while it is found, joined and checked: two row numbers
#: (twice that while arrays grow), a row number per label, some gathered columns of eight bytes.
_PAIR = 96


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a task's private memory, by use.

    Attributes:
        pairs: maximum number of result tuples of one probe; larger probes are split.
        combinations: maximum number of rows of intermediate results that wait to be stored.
        page: maximum bytes of results, per query, that wait to be written.
        total: limit of the task's private memory in bytes; None: no limit.
    """

    pairs: int = 1 << 22
    combinations: int = 1 << 22
    page: int = 64 * _MIB
    total: int | None = None


def budget(limit: int | None, tasks: int) -> Budget:
    """Return the budget of each of ``tasks`` tasks on a host with ``limit`` bytes of memory.

    Merges get one further share (:func:`largest_merge`). A probe gets an eighth of a task's share,
    since the probes of a probe order are nested; pages and combinations get an eighth each.

    >>> budget(1 << 30, 2).pairs
    378652
    """
    if limit is None:
        return Budget()
    share = _share(limit, tasks)
    return Budget(
        pairs=share // (8 * _PAIR),
        combinations=share // (8 * _PAIR),
        page=share // 8,
        total=BASE + share,
    )


def largest_merge(limit: int | None, tasks: int) -> int | None:
    """Return the maximum bytes of a merged segment: a third of a task's share of ``limit`` bytes,
    since a merge copies rows twice and sorts indexes; None if ``limit`` is None."""
    return None if limit is None else _share(limit, tasks) // 3


def least_limit(tasks: int) -> int:
    """Return the minimum memory limit, in bytes, of a host with ``tasks`` tasks."""
    return tasks * (BASE + _LEAST) + _LEAST


def check_limit(limit: int | None, tasks: int) -> None:
    """Refuse a limit that is too small for ``tasks`` tasks on one host.

    Raises:
        PipelineError: ``memory-limit``: ``limit`` is below :func:`least_limit`.
    """
    least = least_limit(tasks)
    if limit is not None and limit < least:
        raise PipelineError(
            "memory-limit",
            f"a memory limit of {limit / _MIB:.0f} MiB is not enough for {tasks} tasks",
            remedy=f"give --memory-limit at least {least // _MIB} MiB, leave it out, or run fewer "
            "tasks (--master)",
        )


def byte_size(text: str) -> int:
    """Parse a size of memory such as ``512MiB`` as a number of bytes.

    >>> byte_size("2 GiB"), byte_size("1.5GB"), byte_size("300000000")
    (2147483648, 1500000000, 300000000)

    Raises:
        ValueError: ``text`` is not a size.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if found is None or (found[3] and not found[2]):
        raise ValueError(f"{text!r} is not a number of bytes, such as 2GB or 512MiB")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2] or " "))


def _share(limit: int, tasks: int) -> int:
    return max((limit - tasks * BASE) // (tasks + 1), _LEAST // 2)


@dataclass(slots=True)
class PrivateMemory:
    """This process's private memory, measured now and then.

    Attributes:
        peak: greatest measured number of bytes.
        kept: bytes of this process after free memory was last returned to the system.
        again: time (monotonic) from which less free memory is returned, too.
        read: measures the memory in bytes; 0 if the system does not report it.
    """

    read: Callable[[], int] = field(default_factory=lambda: private_bytes)
    peak: int = 0
    kept: ClassVar[int] = BASE
    again: ClassVar[float] = 0.0
    _next: float = 0.0

    def glance(self) -> None:
        """Measure the memory at most every 5 ms: the system call takes as long as a small probe."""
        if time.perf_counter() >= self._next:
            self.look()
            self._next = time.perf_counter() + _GLANCE

    def look(self) -> int:
        """Measure and return the task process's private memory in bytes."""
        now = self.read()
        self.peak = max(self.peak, now)
        return now

    def give_back(self, budget: Budget) -> None:
        """Measure, and return the allocators' free memory to the system if over half of the budget
        is used, so that memory freed in one phase does not add to the next phase's. Without a
        limit: if memory has doubled since that was last done, or a minute has passed."""
        now, total = self.look(), budget.total
        some = self.kept + _SPARE
        if time.monotonic() < self.again:
            some += self.kept
        if now > (some if total is None else total // 2):
            import pyarrow as pa  # Parsing the command line must not wait for it.

            pa.default_memory_pool().release_unused()
            trim = _trim()
            if trim is not None:
                trim(0)
            PrivateMemory.kept = self.read()
            PrivateMemory.again = time.monotonic() + _MINUTE


def private_bytes() -> int:
    """Return this process's anonymous memory in bytes: resident, neither of files nor shared."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared = file.read().split()[:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """Return the C library's ``malloc_trim``; None if it has no such function."""
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is not None:
        found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return found

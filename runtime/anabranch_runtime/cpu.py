"""CPU time of this process by use (group and name): of tasks, by phase, and of other threads.

Calls of users' functions run in processes of their own. Their CPU time counts as that of the thread
that waits for them, so it is part of the use that needs the call.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from anabranch_contract.protocol.profile import CpuGroup

#: CPU seconds by use: group, and name in the group (such as a query's or a stream's).
CpuUses = dict[tuple[CpuGroup, str], float]

#: Phase of a task -> group to which the CPU seconds of the phase are added that no meter counted.
_COMMON = {"read": CpuGroup.SOURCE, "store": CpuGroup.INSERT} | dict.fromkeys(
    ("probe", "catch-up", "write"), CpuGroup.PROBE
)
_lock = threading.Lock()
#: CPU seconds of this process that :func:`attribute_rest` has attributed so far.
_reported = 0.0
_threads: CpuUses = defaultdict(float)
#: CPU seconds that other processes spent on calls (of users' functions) by this process.
_called = 0.0


class _OfThread(threading.local):
    """CPU seconds that other processes (of users' functions) spent on calls by this thread."""

    called = 0.0


_of_thread = _OfThread()


def process_seconds() -> float:
    """CPU seconds of this process, including users' functions on its calls."""
    return time.process_time() + _called


def thread_seconds() -> float:
    """CPU seconds of this thread, including users' functions on its calls."""
    return time.thread_time() + _of_thread.called


def add_called(seconds: float) -> None:
    """Count the CPU seconds that a user's function, in its process, spent on this thread's call."""
    global _called
    with _lock:
        _called += seconds
    _of_thread.called += seconds


def add_time(spent: CpuUses, group: CpuGroup, name: str, began: float) -> float:
    """Attribute the process's CPU seconds since ``began`` to a use in ``spent``; return them."""
    seconds = process_seconds() - began
    spent[group, name] = spent.get((group, name), 0.0) + seconds
    return seconds


@contextmanager
def metered(group: CpuGroup, name: str) -> Iterator[None]:
    """Count this thread's CPU time in the ``with`` block for a use; for threads beside batches."""
    began = thread_seconds()
    try:
        yield
    finally:
        add_metered(group, name, thread_seconds() - began)


def add_metered(group: CpuGroup, name: str, seconds: float) -> None:
    """Count CPU ``seconds`` of this thread for a use, as :func:`metered` does for its block."""
    with _lock:
        _threads[group, name] += seconds


def divide(group: CpuGroup, name: str, among: Sequence[str], seconds: float) -> None:
    """Divide CPU ``seconds``, counted by :func:`metered`, equally ``among`` uses of a group."""
    with _lock:
        _threads[group, name] -= seconds
        for one in among:
            _threads[group, one] += seconds / len(among)


def take_metered() -> CpuUses:
    """Return the CPU seconds per use that :func:`metered` has counted since the last call."""
    with _lock:
        found = dict(_threads)
        _threads.clear()
    return found


def attribute_rest(spent: CpuUses, phases: Mapping[str, float]) -> None:
    """Add the unmetered CPU time of a task's process since its last batch to the task's uses.

    Args:
        spent: metered uses within phases; afterwards their sum is the process's CPU time.
        phases: phase -> its CPU seconds, without nested phases.
    """
    global _reported
    beside, rest = take_metered(), defaultdict[tuple[CpuGroup, str], float](float)
    for (group, _), seconds in spent.items():
        # Results are written during probe phases, so their time is a part of these phases' time.
        rest[CpuGroup.PROBE if group is CpuGroup.SINK else group, ""] -= seconds
    for phase, seconds in phases.items():
        common = _COMMON.get(phase)
        rest[(CpuGroup.TASK, phase) if common is None else (common, "")] += seconds
    now = process_seconds()
    metered_here = sum(phases.values()) + sum(beside.values())
    rest[CpuGroup.TASK, "between batches"] += now - _reported - metered_here
    _reported = now
    for key, seconds in (*beside.items(), *rest.items()):
        spent[key] = spent.get(key, 0.0) + seconds

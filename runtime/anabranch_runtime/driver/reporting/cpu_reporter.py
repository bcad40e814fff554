"""CPU time of the runtime's processes by use, reported about once a second between batches.

Tasks, merges, ingest queries and views count their own seconds, the batch thread is metered step by
step, and the operating system counts the seconds of whole processes. The seconds of a process that
no meter covers are unattributed. All counters only grow, so readers form differences at times of
their own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable

from anabranch_contract.plans.ruleset import Edge, Ruleset, StoreId
from anabranch_contract.protocol.profile import CpuGroup, CpuReport, CpuUse
from anabranch_contract.queries.runs import query_of
from anabranch_runtime.control import Control
from anabranch_runtime.cpu import CpuUses, take_metered
from anabranch_runtime.epochs.ownership import ownership
from anabranch_runtime.epochs.per_ruleset import alike
from anabranch_runtime.expressions import user_process

#: Least seconds between two reports, also as a multiple of the CPU time that a report takes.
EVERY, REST = 1.0, 100.0
#: Number of uses above which uses of earlier rulesets are no longer counted by name.
MOST = 2000
#: Module of Spark's daemon, whose forks run tasks.
_DAEMON = "anabranch_runtime.spark.daemon"
#: Script of the processes that call users' functions.
_FUNCTIONS = user_process.__file__
_Key = tuple[CpuGroup, str, tuple[str, ...]]


class CpuReporter:
    """Sums and reports the CPU seconds of one run of the runtime, by use."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._spent: dict[_Key, float] = defaultdict(float)
        self._ruleset: Ruleset | None = None
        #: Use (group and name) of the running ruleset -> key under which its seconds are summed.
        self._keys: dict[tuple[CpuGroup, str], _Key] = {}
        #: Metered seconds of this process, of the tasks' processes, and of other processes.
        self._here = self._tasks = self._others = 0.0
        self._thread = threading.local()
        self._next = 0.0

    def lap(self, step: str) -> None:
        """Add this thread's CPU time since the last call to ``step`` of the driver."""
        now = time.thread_time()
        spent = now - getattr(self._thread, "lap", now)
        self._thread.lap = now
        self.add(step, spent)

    def add(self, step: str, seconds: float) -> None:
        """Add CPU seconds of the driver's process to ``step`` of the driver."""
        self._here += seconds
        self._spent[CpuGroup.DRIVER, step, ()] += seconds

    def batch(self, ruleset: Ruleset, tasks: Iterable[CpuUses]) -> None:
        """Add the CPU seconds that the tasks of a batch of ``ruleset`` spent, by use."""
        if not alike(ruleset, self._ruleset):
            self._ruleset, self._keys = ruleset, {}
        for task in tasks:
            self._tasks += self._add(task)

    def of_tables(self, uses: CpuUses) -> None:
        """Add the CPU seconds of the process that maintains tables, by use."""
        self._others += self._add(uses)

    def _add(self, uses: CpuUses) -> float:
        """Add the CPU seconds of uses to the sums of the run; return their total."""
        for (group, name), seconds in uses.items():
            self._spent[self._key(group, name)] += seconds
        return sum(uses.values())

    def report(self) -> None:
        """Report the CPU time of all uses, at most once in :data:`EVERY` seconds."""
        if time.monotonic() < self._next:
            return
        began = time.thread_time()
        self._here += self._add(take_metered())
        if len(self._spent) > MOST + 2 * len(self._keys):
            self._forget(set(self._keys.values()))
        rest = _children()
        spark = rest.pop(CpuGroup.SPARK, 0.0)
        if "tasks" in rest:
            rest["tasks"] -= self._tasks
        if "others" in rest:
            rest["others"] -= self._others
        rest["driver"] = time.process_time() - self._here
        uses = [CpuUse(*key, seconds) for key, seconds in self._spent.items() if seconds]
        uses += [CpuUse(CpuGroup.UNATTRIBUTED, name, (), s) for name, s in rest.items()]
        uses.append(CpuUse(CpuGroup.SPARK, "JVM", (), spark))
        self._control.report_profile(CpuReport(self._control.run, time.time(), tuple(uses)))
        self._next = time.monotonic() + max(EVERY, REST * (time.thread_time() - began))

    def _key(self, group: CpuGroup, name: str) -> _Key:
        known = self._keys.get((group, name))
        if known is None:
            if group in (CpuGroup.SINK, CpuGroup.VIEW):
                name = query_of(name)
            users = sorted({query_of(q) for q in self._users(group, name)})
            known = self._keys[group, name] = group, name, tuple(users)
        return known

    def _users(self, group: CpuGroup, name: str) -> Collection[str]:
        """Return the running queries that a use of CPU time serves; empty if all, or if unknown."""
        if group in (CpuGroup.SINK, CpuGroup.VIEW):
            return (name,)
        ruleset = self._ruleset
        if ruleset is None or group is CpuGroup.TASK:
            return ()
        owners = ownership(ruleset)
        if group is CpuGroup.PROBE:
            return owners.of_edge(Edge(name))
        if group is CpuGroup.SOURCE:
            relations = (r.id for r in ruleset.relations if r.stream == name)
            return {query for relation in relations for query in owners.of_relation(relation)}
        return owners.of_store(StoreId(name))

    def _forget(self, kept: Collection[_Key]) -> None:
        """Add the CPU seconds of all uses except ``kept`` to the common use of their group."""
        for key in [k for k in self._spent if (k[1] or k[2]) and k not in kept]:
            if key[0] in (CpuGroup.DRIVER, CpuGroup.TASK):
                continue
            self._spent[key[0], "", ()] += self._spent.pop(key)


def _children() -> dict[str, float]:
    """Return the CPU seconds of this process's descendants, even ended ones, by kind: Spark's JVM,
    processes of tasks, others."""
    # Imported late, since tests limit the memory that driver and task use up to the first report.
    import psutil

    found, kinds = defaultdict[str, float](float), dict[int, str]()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if process.name() == "java":
                kind = CpuGroup.SPARK.value
            elif _FUNCTIONS in command:
                # The seconds of users' functions are metered by the callers.
                kind = kinds.get(process.ppid(), "others")
            else:
                kind = "tasks" if _DAEMON in command else "others"
            kinds[process.pid] = kind
            times = process.cpu_times()
            ended = getattr(times, "children_user", 0) + getattr(times, "children_system", 0)
            found[kind] += times.user + times.system + ended
    return found

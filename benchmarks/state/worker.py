"""One run of a join operator over TPC-DS in a separate process, optionally with a memory limit.

The process gets a :class:`Run` and prints a line of JSON after each batch, so that its progress is
known even if it is killed for lack of memory.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch_runtime.errors import StateError
from anabranch_runtime.task.memory import PrivateMemory
from benchmarks.session import WrongResultError
from benchmarks.state import tpcds
from benchmarks.umjoin.backends.opening import open_backend, warm
from benchmarks.umjoin.operators.binary_tree import BinaryTree, Tree
from benchmarks.umjoin.operators.joins import Join
from benchmarks.umjoin.operators.multi_join import MultiJoin
from tests.support.surroundings.cgroups import UNAVAILABLE, memory_group

#: Memory limit in bytes that no run reaches.
AMPLE = 1 << 40
#: Bytes for pages of programs and libraries, which count for the process that first reads them.
PROGRAMS = 16 << 20
_SAID = "--run"
#: Linux's PR_SET_THP_DISABLE.
_WITHOUT_HUGE_PAGES = 41
_MEMORY = PrivateMemory()


@dataclass(frozen=True, slots=True)
class Run:
    """A run of one operator over one backend.

    Attributes:
        data: folder of the tables. ``state``: folder of the state, which is removed at the end.
        kind: kind of backend. ``limit``: the backend's memory limit in bytes.
        batch: tuples per batch. ``only``: number of batches; None: all.
        tree: name of a tree of binary joins; None: the multi-way join.
        cap: memory limit of the process in bytes, page cache included; None: no limit.
        patience: seconds after which the process is stopped; None: never.
    """

    data: Path
    state: Path
    kind: str = "lsm"
    limit: int = AMPLE
    batch: int = 20_000
    only: int | None = None
    tree: Tree | None = None
    cap: int | None = None
    patience: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run.

    Attributes:
        points: (seconds, tuples, results) after each batch.
        ended: "done", "killed" (for lack of memory), "stopped" (after ``patience``), or the code of
            an error.
        last: the last line that the process printed; see :func:`_work`.
    """

    points: list[tuple[float, int, int]]
    ended: str
    last: dict[str, Any]

    @property
    def results(self) -> int:
        """Number of results found."""
        return self.points[-1][2] if self.points else 0

    @property
    def seconds(self) -> float:
        """Seconds until the end of the last finished batch."""
        return self.points[-1][0] if self.points else 0.0


def run(wanted: Run, expected: int | None = None) -> Outcome:
    """Run an operator in a new process.

    Args:
        wanted: the run.
        expected: number of results of a finished run; None: any.

    Raises:
        WrongResultError: the number of results differs.
        RuntimeError: the process failed, or its memory can't be limited.
    """
    found = _run_process(wanted)
    if expected is not None and found.ended == "done" and found.results != expected:
        raise WrongResultError(f"{wanted.kind}: {found.results} results, DuckDB has {expected}")
    return found


def _run_process(wanted: Run) -> Outcome:
    text = json.dumps(asdict(wanted), default=str)
    command = [sys.executable, "-m", "benchmarks.state.worker", _SAID, text]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "MALLOC_ARENA_MAX": "2",
    }
    with memory_group(AMPLE if wanted.cap is None else wanted.cap) as group:
        if group is None and wanted.cap is not None:
            raise RuntimeError(UNAVAILABLE)
        process = subprocess.Popen(
            command if group is None else group.command(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        stopped = False
        try:
            said, complaints = process.communicate(timeout=wanted.patience)
        except subprocess.TimeoutExpired:
            stopped = True
            process.kill()
            said, complaints = process.communicate()
        peak = None if group is None else group.peak
    shutil.rmtree(wanted.state, ignore_errors=True)
    lines = [json.loads(line) for line in said.splitlines() if line.endswith("}")]
    points = [(x["seconds"], x["tuples"], x["results"]) for x in lines if "tuples" in x]
    last: dict[str, Any] = next((x for x in lines if "ended" in x), {})
    killed = process.returncode in (-9, 137)
    if not last and not killed:
        raise RuntimeError(f"{text}: {process.returncode} {complaints[-2000:]}")
    ended = "stopped" if stopped else "killed" if killed else last["ended"]
    return Outcome(points, ended, {**last, "peak": peak})


def base(data: Path, home: Path, batch: int) -> int:
    """Return the peak anonymous memory in bytes of a process with hardly any state: interpreter,
    libraries, compiled code, one batch and its results.
    """
    found: int = run(Run(data, home / "base", batch=batch, only=1)).last["anonymous"]
    return found


def order_of(folder: Path, join: Join) -> dict[str, tuple[str, ...]]:
    """Return probe orders that probe the smaller tables first."""
    counts = tpcds.rows_of(folder)
    return {
        name: tuple(sorted((n for n in join.by_name if n != name), key=lambda n: counts[n]))
        for name in join.by_name
    }


def _work(wanted: Run) -> None:
    # Disable huge pages, with which a process's memory varies by a quarter between runs.
    ctypes.CDLL(None).prctl(_WITHOUT_HUGE_PAGES, 1, 0, 0, 0)
    warm()
    # The system allocator does not count memory that was returned to the kernel as in use.
    pa.set_memory_pool(pa.system_memory_pool())
    join = tpcds.join_of(wanted.data)
    tree = wanted.tree
    operator: MultiJoin | BinaryTree
    operator = (
        MultiJoin(join, order_of(wanted.data, join)) if tree is None else BinaryTree(join, tree)
    )
    ended = "done"
    told: dict[str, Any] = {}
    try:
        told = _run(wanted, operator)
    except StateError as error:
        ended = error.code
    _say({"ended": ended, "anonymous": _MEMORY.peak, **told})


def _run(wanted: Run, operator: MultiJoin | BinaryTree) -> dict[str, Any]:
    tuples = results = 0
    began, used = time.perf_counter(), time.process_time()
    with open_backend(wanted.state, operator.tables, wanted.limit, wanted.kind) as backend:
        batches = islice(tpcds.batches(wanted.data, wanted.batch), wanted.only)
        for number, arrivals in enumerate(batches):
            done = operator.process(backend, number, arrivals, _taken)
            _MEMORY.look()
            tuples += sum(rows.num_rows for rows in arrivals.values())
            results += done.results
            seconds = round(time.perf_counter() - began, 3)
            _say({"seconds": seconds, "tuples": tuples, "results": results})
        told = backend.statistics()
    spent = time.process_time() - used
    between = operator.intermediate if isinstance(operator, BinaryTree) else ()
    return {
        "cpu_seconds": round(spent, 3),
        "state": told.bytes,
        "memory": told.memory,
        "intermediate": sum(told.tables[name].bytes for name in between),
        "intermediate_rows": sum(told.tables[name].rows for name in between),
        "segments": sum(t.segments or 0 for t in told.tables.values()),
        "write_amplification": told.write_amplification,
    }


def _taken(rows: pa.RecordBatch) -> None:
    """Materialise results with all their columns, and discard them; then memory use is greatest."""
    assert rows.num_columns
    _MEMORY.look()


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _tree(found: Any) -> Tree:
    return found if isinstance(found, str) else (_tree(found[0]), _tree(found[1]))


def main(arguments: list[str]) -> None:
    """Main program of the process."""
    given = json.loads(arguments[arguments.index(_SAID) + 1])
    wanted = Run(**given)
    _work(
        replace(
            wanted,
            data=Path(given["data"]),
            state=Path(given["state"]),
            tree=None if given["tree"] is None else _tree(given["tree"]),
        )
    )


if __name__ == "__main__":
    main(sys.argv)

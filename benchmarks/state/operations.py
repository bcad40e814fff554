"""Cost of the operations of UMJoin's state backends: inserts, probes that hit or miss, expiry.

``python -m benchmarks.state.operations [--json]``

Each backend stores the same rows of 48 bytes (an int64 key that few rows share, five numbers),
inserted in batches, each of them committed. Then the backends take turns with batches of probes,
which find rows and gather all of their columns. ``miss`` probes with keys that no row has; in
``rocksdb`` this is one call that Bloom filters answer, so mostly the cost of calls from Python.
``expire`` expires a tenth of the rows and commits, once. Backends remove rows physically at
different times (whole segments; half of all rows), so this is the cost of a commit, not of removing
rows.

*Fits*: memory is unlimited. *Does not fit*: each backend is a process in a control group whose
memory, page cache included, is that of a bare process plus half of the rows' size. ``memory`` is
left out, since it needs all rows in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU, IndexKey
from benchmarks.command import Benchmark, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.state.command import run
from benchmarks.umjoin.backends.interface import Backend, BackendKind, Ints, Table, TableSpec
from benchmarks.umjoin.backends.opening import open_backend, warm
from tests.support.surroundings.cgroups import UNAVAILABLE, memory_group

_KEY = IndexKey(("k",), ("bigint",))
_NUMBERS = tuple(f"n{i}" for i in range(5))
SPEC = TableSpec(
    pa.schema([("k", pa.int64()), *((n, pa.int64()) for n in _NUMBERS)]), (_KEY,), timed=True
)
#: Rows per key.
_SHARED = 2
_ROW = 8 * (len(_NUMBERS) + 3)
#: Share of rows that one round expires.
_EXPIRED = 0.1


class Load:
    """A state backend with rows, under load."""

    def __init__(self, kind: str, folder: Path, rows: int, batch: int, limit: int) -> None:
        self.backend: Backend = open_backend(folder, {"t": SPEC}, limit, kind)
        self._draw = np.random.default_rng(1)
        self._batch = 0
        self._count = batch
        self.keys = max(rows // _SHARED, 1)
        self.inserted: list[float] = []
        self._taus = 0
        for _ in range(-(-rows // batch)):
            self.insert()

    @property
    def table(self) -> Table:
        """The backend's table."""
        return self.backend.tables["t"]

    def insert(self) -> None:
        """Insert a batch of rows and commit it."""
        count = self._count
        columns = [pa.array(self._draw.integers(0, self.keys, count))]
        columns += [pa.array(self._draw.integers(0, 1 << 40, count)) for _ in _NUMBERS]
        first = self._batch << OFFSET_BITS
        columns.append(pa.array(np.arange(first, first + count)))
        columns.append(pa.array(np.arange(self._taus, self._taus + count)))
        rows = pa.RecordBatch.from_arrays(columns, names=[*SPEC.columns.names, SIGMA, TAU])
        self._taus += count
        began = time.perf_counter()
        self.table.insert(rows)
        self.backend.commit(self._batch)
        self.inserted.append(count / (time.perf_counter() - began))
        self._batch += 1

    def probe(self, keys: Ints) -> tuple[float, int]:
        """Probe with ``keys``; return probes per second, and the number of rows found."""
        asked = [pa.array(keys)]
        began = time.perf_counter()
        found = 0
        for part in self.table.probe(_KEY, asked):
            columns = [part.rows.column(name) for name in SPEC.columns.names]
            found += len(columns[0])
        return len(keys) / (time.perf_counter() - began), found

    def expire(self) -> float:
        """Expire rows and commit; return the expired rows per second."""
        gone = int(self._taus * _EXPIRED)
        began = time.perf_counter()
        self.table.expire(gone)
        self.backend.commit(self._batch)
        self._batch += 1
        return gone / (time.perf_counter() - began)


def probes(load: Load, batch: int, number: int, *, hit: bool) -> Ints:
    """Return the keys of a round of probes, which are equal for all backends."""
    draw = np.random.default_rng(1000 + number)
    found: Ints = draw.integers(0, load.keys, batch)
    return found if hit else found + (1 << 41)


def fits(rows: int, batch: int, rounds: int, home: Path, limit: int) -> dict[str, Any]:
    """Measure all backends in this process, in turns, with sufficient memory."""
    loads = {
        str(kind): Load(str(kind), home / f"{kind}-{batch}", rows, batch, limit)
        for kind in BackendKind
    }
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in loads}
    try:
        for number in range(rounds + 1):
            answers = set()
            for kind, load in loads.items():
                for what, hit in (("hit", True), ("miss", False)):
                    keys = probes(load, batch, number, hit=hit)
                    speed, many = load.probe(keys)
                    answers.add((what, many))
                    if number:
                        found[kind].setdefault(what, []).append(speed)
            assert len(answers) == 2, answers
        for kind, load in loads.items():
            found[kind]["insert"] = load.inserted[1:] or load.inserted
            found[kind]["expire"] = [load.expire()]
    finally:
        for load in loads.values():
            load.backend.close()
    return _summed(found)


def capped(rows: int, batch: int, rounds: int, home: Path) -> dict[str, Any]:
    """Measure ``lsm`` and ``rocksdb`` in a process each, with memory for half of the rows."""
    base = _child(["--base"], None)["base"]
    state = rows * _ROW // 2
    found: dict[str, Any] = {"base": base, "limit": base + state, "fits": False}
    speeds: dict[str, dict[str, list[float]]] = {}
    for kind in (BackendKind.LSM, BackendKind.ROCKSDB):
        folder = home / f"capped-{kind}-{batch}"
        asked = [*_texts(kind, folder, rows, batch, rounds, state // 2)]
        with memory_group(base + state) as group:
            if group is None:
                return {"skipped": UNAVAILABLE}
            speeds[str(kind)] = _child(asked, group.command)["speeds"]
    return found | _summed(speeds)


def _texts(*values: object) -> list[str]:
    return [str(value) for value in values]


def _child(arguments: Sequence[str], inside: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.state.operations", "--child", *arguments]
    command = command if inside is None else inside(command)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.returncode} {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def child(arguments: Sequence[str]) -> None:
    """Main program of such a process: prints its memory, or probes per second."""
    warm()
    if arguments[0] == "--base":
        sys.stdout.write(json.dumps({"base": psutil.Process().memory_info().rss}))
        return
    kind, folder, *numbers = arguments
    rows, batch, rounds, limit = map(int, numbers)
    load = Load(kind, Path(folder), rows, batch, limit)
    speeds: dict[str, list[float]] = {"insert": load.inserted[1:] or load.inserted}
    with load.backend:
        for number in range(rounds + 1):
            for what, hit in (("hit", True), ("miss", False)):
                speed, _ = load.probe(probes(load, batch, number, hit=hit))
                if number:
                    speeds.setdefault(what, []).append(speed)
        speeds["expire"] = [load.expire()]
    sys.stdout.write(json.dumps({"speeds": speeds}))


def _summed(found: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    middle = {k: {w: statistics.median(s) for w, s in f.items()} for k, f in found.items()}
    ratios = {
        other: {w: round(middle["lsm"][w] / speed, 3) for w, speed in middle[other].items()}
        for other in middle
        if other != "lsm"
    }
    speeds = {k: {w: spread(s) for w, s in f.items()} for k, f in found.items()}
    return {"per_second": speeds, "lsm_over": ratios}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--limit", type=int, default=4 << 30, help="bytes of memory where it fits")
    parser.add_argument("--skip-capped", action="store_true")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    os.environ.setdefault("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    found = []
    for batch in options.batches:
        tell(f"{options.rows:,} rows, batches of {batch:,}")
        one = {
            "batch": batch,
            "fits": fits(options.rows, batch, options.rounds, home, options.limit),
        }
        if not options.skip_capped:
            one["capped"] = capped(options.rows, batch, options.rounds, home)
        found.append(one)
    return {"sizes": found}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: thousands of rows or probes per second, and ratios."""
    rows = []
    for one in entry["sizes"]:
        for where in ("fits", "capped"):
            for kind, speeds in one.get(where, {}).get("per_second", {}).items():
                over = one[where]["lsm_over"].get(kind, {})
                rows.append(
                    (
                        f"{one['batch']:,}",
                        "fits" if where == "fits" else "does not fit",
                        kind,
                        *(f"{speeds[w]['median'] / 1e3:,.0f}" for w in WHATS),
                        *(f"{over[w]:.2f}" if w in over else "" for w in WHATS),
                    )
                )
    head = ("batch", "memory", "backend", *WHATS, *(f"lsm/this {w}" for w in WHATS))
    return [Grid("operations, thousands per second", head, tuple(rows), texts=3)]


WHATS = ("insert", "hit", "miss", "expire")
PART = Benchmark("operations", "what operations on state cost", _options, _measure, tables)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    return run(PART, arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
    else:
        sys.exit(main())

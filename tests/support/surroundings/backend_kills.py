"""Kill a process that writes a state backend, at every step or at any time; then check the state.

``python -m tests.support.surroundings.backend_kills KIND FOLDER steps|times [ROUNDS]`` prints one
line of JSON. It is a separate process, from which each writer is forked; that is cheap as long as
it has no threads. A writer kills itself by SIGKILL before its n-th call that changes a file
(``steps``), or is killed by a timer (``times``). The next process must find exactly the last
committed state, and continue from there.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU, IndexKey
from benchmarks.umjoin.backends.interface import Backend, BackendKind, TableSpec
from benchmarks.umjoin.backends.lsm import LsmBackend
from benchmarks.umjoin.backends.opening import open_backend
from tests.support.surroundings.backends import PLENTY, stored

#: Number of batches, sufficient for two merges, and for most rows of the timed table to expire.
BATCHES = 14
ROWS = 30
_INDEX = IndexKey(("k",), ("bigint",))
TABLES = {
    "r": TableSpec(pa.schema([("k", pa.int64()), ("v", pa.string())]), (_INDEX,)),
    "s": TableSpec(pa.schema([("k", pa.int64())]), (_INDEX,), timed=True),
}
WINDOW = 4


def write(backend: Backend, batch: int) -> None:
    """Insert the batch's rows, which are always the same, and expire rows older than the window."""
    draw = np.random.default_rng(batch)
    keys = draw.integers(0, 10, ROWS)
    texts = np.array([f"{batch}:{i}" for i in range(ROWS)])
    first = batch << OFFSET_BITS
    backend.tables["r"].insert(stored(TABLES["r"], {"k": keys, "v": texts}, first))
    if "s" not in backend.tables:
        return
    backend.tables["s"].insert(stored(TABLES["s"], {"k": keys}, first, np.full(ROWS, batch)))
    backend.tables["s"].expire(batch - WINDOW)


def look(backend: Backend) -> None:
    """Check that the backend has all batches up to its last one, and nothing else."""
    keys = [pa.array(range(10))]
    for name, table in backend.tables.items():
        found = [f.rows for f in table.probe(_INDEX, keys)]
        sigmas = sorted(s for rows in found for s in rows.int64(SIGMA).tolist())
        least = 0
        if name == "s":
            least = max(0, backend.batch - WINDOW)
            taus = [t for rows in found for t in rows.int64(TAU).tolist()]
            sigmas = [s for s in sigmas if s >> OFFSET_BITS >= least]
            assert len(sigmas) == sum(t >= least for t in taus)
        wanted = [
            (batch << OFFSET_BITS) + i
            for batch in range(least, backend.batch + 1)
            for i in range(ROWS)
        ]
        assert sigmas == wanted, (name, backend.batch, len(sigmas), len(wanted))
    backend.verify()


def _open(kind: BackendKind, folder: Path, *, beside: bool) -> Backend:
    if kind is BackendKind.LSM:
        return LsmBackend(folder, TABLES, PLENTY, beside=beside)
    return open_backend(folder, TABLES, PLENTY, kind)


def _strike_at(step: int) -> None:
    """Arrange that this process is killed before the ``step``-th call that changes a file."""
    left = [step]

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **named)

        return call

    os.fsync = deadly(os.fsync)
    for name in ("rename", "unlink", "mkdir", "open"):
        setattr(Path, name, deadly(getattr(Path, name)))
    rocks = sys.modules.get("benchmarks.umjoin.backends.rocks")
    if rocks is not None:
        real = rocks.Rdict

        class Deadly:
            def __init__(self, *args: Any) -> None:
                self._real = real(*args)
                self.write = deadly(self._real.write)
                self.close = deadly(self._real.close)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._real, name)

        rocks.Rdict = Deadly  # type: ignore[attr-defined]


def _writer(kind: BackendKind, folder: Path, step: int | None, seconds: float, told: int) -> None:
    """Write batch after batch until killed, and report each commit by the pipe."""
    if step is not None:
        _strike_at(step)
    else:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    with _open(kind, folder, beside=step is None) as backend:
        for batch in range(backend.batch + 1, BATCHES):
            write(backend, batch)
            backend.commit(batch)
            os.write(told, bytes([batch]))


def _round(
    kind: BackendKind, folder: Path, step: int | None, seconds: float
) -> tuple[bool, int, float]:
    """Run one writer; then check its state, and write the remaining batches.

    Returns:
        Whether the writer was killed, the last batch that it reported, and the seconds it ran.
    """
    began = time.perf_counter()
    reading, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            _writer(kind, folder, step, seconds, told)
            code = 0
        finally:
            os._exit(code)
    os.close(told)
    said = b"".join(iter(lambda: os.read(reading, 64), b""))
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - began
    killed = os.WIFSIGNALED(status)
    assert killed or os.WEXITSTATUS(status) == 0, "the writer failed"
    last = max(said, default=-1)
    # The check is forked as well: opening a backend starts threads, which this process must not
    # have.
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with _open(kind, folder, beside=False) as backend:
                assert backend.batch in (last, last + 1), (backend.batch, last)
                look(backend)
                for batch in range(backend.batch + 1, BATCHES):
                    write(backend, batch)
                    backend.commit(batch)
                look(backend)
            code = 0
        except BaseException as error:  # noqa: BLE001 - reported on standard error
            sys.stderr.write(f"{kind} {step} {seconds}: {error!r}\n")
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"{kind}: step {step}, {seconds} s"
    return killed, last, took


def main() -> None:
    """Run the rounds and print the result."""
    kind, home, mode = BackendKind(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 10**9
    if kind is BackendKind.ROCKSDB:
        import benchmarks.umjoin.backends.rocks  # noqa: F401 - once, not in every writer
    draw = random.Random(3)
    kills, lasts = 0, set()
    # Seconds of the newest writer that was not killed.
    alone = 0.0
    for n in range(1, rounds + 1):
        folder = home / str(n)
        if mode == "steps":
            killed, last, _ = _round(kind, folder, n, 0.0)
        else:
            limit = 3600.0 if n == 1 else 0.001 + draw.random() * alone
            killed, last, took = _round(kind, folder, None, limit)
            alone = alone if killed else took
        shutil.rmtree(folder)
        kills += killed
        lasts.add(last)
        if mode == "steps" and not killed:
            break
    sys.stdout.write(json.dumps({"kills": kills, "lasts": sorted(lasts)}) + "\n")


if __name__ == "__main__":
    main()

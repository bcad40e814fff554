"""Feeder of files by the clock (open loop), and latencies of their rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.papers.jaqpot.live.overload_workloads import TICK, LiveWorkload, Load
from benchmarks.session import BatchLog

#: Maximum number of rows of a run whose latencies are computed.
SAMPLED = 50_000


@dataclass(frozen=True, slots=True)
class Tick:
    """The files that arrive at one moment.

    Attributes:
        files: stream -> file, at the place where it waits until then. ``rows``: rows of all files.
    """

    files: dict[str, Path]
    rows: int


def prepare(workload: LiveWorkload, load: Load, folder: Path) -> list[Tick]:
    """Write the files of a load, one per stream and tick; a stream without rows has no file."""
    folder.mkdir(parents=True)
    found = []
    for number, tables in enumerate(workload.ticks(load)):
        files = {}
        for stream, table in tables.items():
            if table.num_rows:
                files[stream] = folder / f"{number:06d}-{stream}.parquet"
                pq.write_table(table, files[stream])
        found.append(Tick(files, sum(table.num_rows for table in tables.values())))
    return found


class Feeder(threading.Thread):
    """Thread that moves each tick's files into the streams' folders when their time has come.

    Attributes:
        arrivals: (seconds since 1970, number of rows that have arrived so far).
    """

    def __init__(self, folder: Path, ticks: Sequence[Tick], *, timed: bool) -> None:
        """``timed``: whether rows get their time of arrival as event time."""
        super().__init__(name="feeder", daemon=True)
        self._folder, self._ticks, self._timed = folder, ticks, timed
        self.arrivals: list[tuple[float, int]] = []

    def run(self) -> None:
        """Feed the files of all ticks."""
        began, total = time.time(), 0
        for number, tick in enumerate(self._ticks):
            due = began + (number + 1) * TICK
            time.sleep(max(due - time.time(), 0.0))
            for stream, file in tick.files.items():
                if self._timed:
                    _stamp(file, due)
                file.rename(self._folder / stream / f"{number:06d}.parquet")
            total += tick.rows
            self.arrivals.append((time.time(), total))


def _stamp(file: Path, due: float) -> None:
    """Add event times within its tick to a file's rows."""
    table = pq.read_table(file)
    first = int((due - TICK) * 1e6)
    times = first + np.arange(table.num_rows) * int(TICK * 1e6) // max(table.num_rows, 1)
    column = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(table.add_column(0, "ts", column), file)


def latencies(
    log: Sequence[BatchLog],
    arrivals: Sequence[tuple[float, int]],
    begin: float,
    until: float | None = None,
) -> list[float]:
    """Return the seconds from arrival to commit of the rows that arrived from ``begin`` on; of a
    long run, of evenly spaced rows.

    Args:
        arrivals: (seconds since 1970, number of rows that have arrived so far), ascending.
        until: time up to which rows count that no batch has read; None: they do not count.
    """
    times, counts = (np.array(column) for column in zip(*arrivals, strict=True))
    commits = np.array([batch.committed_at for batch in log] + ([] if until is None else [until]))
    read = np.cumsum([batch.tuples for batch in log])
    last = int(read[-1]) if until is None else int(counts[-1])
    rows = np.arange(0, last, max(last // SAMPLED, 1))
    arrived = times[np.searchsorted(counts, rows, side="right")]
    committed = commits[np.searchsorted(read, rows, side="right")]
    found: list[float] = (committed - arrived)[arrived >= begin].tolist()
    return found


def files_of(folder: Path, ticks: int | None = None) -> Iterator[Path]:
    """Yield the files of a stream that have arrived in the first ``ticks`` ticks (None: in all)."""
    for file in sorted(folder.glob("*.parquet")):
        if ticks is None or int(file.stem) < ticks:
            yield file

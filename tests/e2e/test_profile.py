"""Test of a live pipeline's CPU profile against the CPU time of its processes, measured from
outside.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_client.processes.meter import cpu_seconds, tree
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_contract.rest.profile import CpuProfile, ProfileOut
from tests.support.surroundings.terminal import piped
from tests.support.worlds.processes import LivePipeline, live_pipeline, meanwhile

START = datetime(2024, 5, 1, tzinfo=UTC)
STREAMS = ("a", "b", "c")
#: Rows per file, and seconds between two files of each stream.
ROWS, EVERY = 4000, 0.5
#: Seconds of the measured period.
SECONDS = 12.0
QUERIES = {
    "ab": "SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k",
    "abc": "SELECT a.v AS av, c.v AS cv FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k",
    "bc": "SELECT b.v AS bv, c.v AS cv FROM b JOIN c ON b.k = c.k",
    "view": "SELECT a.v AS av, count(*) AS n FROM a JOIN c ON a.k = c.k GROUP BY a.v",
}


@contextmanager
def fed(folder: Path) -> Iterator[None]:
    """Context in which files are written to each stream's folder at a steady rate, seconds of event
    time apart.
    """
    draw = np.random.default_rng(7)

    def feed(over: threading.Event) -> None:
        for number in itertools.count():
            for name in STREAMS:
                times = [START + timedelta(seconds=number)] * ROWS
                rows = {
                    "k": draw.integers(0, ROWS, ROWS),
                    "v": draw.integers(0, 99, ROWS).astype(np.int32),
                    "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                }
                partial = folder / name / f".{number}.partial"
                pq.write_table(pa.table(rows), partial)
                partial.rename(folder / name / f"{number:05d}.parquet")
            if over.wait(EVERY):
                return

    with meanwhile(feed):
        yield


def begin(live: LivePipeline, folder: Path) -> None:
    """Register the profiled streams and queries."""
    for name in STREAMS:
        (folder / name).mkdir(parents=True)
        live.client.create_stream(
            name,
            (("k", "bigint"), ("v", "int"), ("ts", "timestamp")),
            event_time="ts",
            source={"format": "parquet", "path": str(folder / name)},
        )
    for name, sql in QUERIES.items():
        live.client.create_query(sql, name=name, window="5 seconds")


def measured(live: LivePipeline) -> tuple[ProfileOut, float]:
    """Return the runtime's counters just after a report, and the CPU seconds of all processes."""
    last = live.client.profile().at
    live.wait("a report", lambda: live.client.profile().at != last)
    seconds = cpu_seconds(tree(live.pipeline.pids()))
    return live.client.profile(), seconds


@pytest.mark.slow
def test_attributed_seconds_are_those_of_all_processes(tmp_path: Path) -> None:
    with live_pipeline(tmp_path / "home", epoch_batches=100, epoch_seconds=60.0) as live:
        begin(live, tmp_path / "in")
        with fed(tmp_path / "in"):
            live.wait("results", lambda: sum(live.progress().results.values()) > 0)
            earlier, before = measured(live)
            time.sleep(SECONDS)
            later, after = measured(live)
            shown = piped("profile", "--seconds", "3", ANABRANCH_URL=live.pipeline.url)
    found, outside = CpuProfile.between(earlier, later), after - before
    attributed = found.cpu - found.groups[CpuGroup.UNATTRIBUTED]
    figures = {"outside": outside, "profile": found.cpu, "attributed": attributed}
    sys.stdout.write(f"{figures}\n{found.groups}\n{shown.stdout}")
    assert outside >= 2
    assert found.cpu == pytest.approx(outside, rel=0.1)
    assert attributed == pytest.approx(outside, rel=0.1)
    spent = {(use.group, use.name) for use in found.uses if use.seconds > 0}
    assert {(CpuGroup.SOURCE, name) for name in STREAMS} < spent
    assert {(CpuGroup.SINK, name) for name in QUERIES} < spent
    assert set(found.groups) == set(CpuGroup)
    assert found.queries.keys() == {"", *QUERIES}
    for words in ("a by k", "JVM", "not attributed"):
        assert words in shown.stdout, shown
    # The next plan follows from measurements: as all keys are equal, its order from ``a`` may be
    # ``a → c → b``.
    steps = re.findall(r"([abc]) → ([abc]) → ([abc])", shown.stdout)
    assert {first for first, *_ in steps} == set(STREAMS), shown

"""Tests of the cluster benchmarks at a tiny scale: output and checks, never speed."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.cluster import changes, report


def run_of(share: float, cpu: float, milliseconds: float, sent: float) -> dict[str, float]:
    names = ("largest_share", "cpu_ms", "batch_ms", "sent_kib")
    return dict(zip(names, (share, cpu, milliseconds, sent), strict=True))


def document(part: str, settings: dict[str, object], **found: object) -> str:
    known = {
        "part": part,
        "at": "2026-01-01T00:00:00Z",
        "commit": "0" * 40,
        "changed": False,
        "versions": {},
        "machine": {"cpus": 2, "memory_gib": 1.0, "system": "x"},
        "load": {"before": [0, 0, 0], "after": [0, 0, 0]},
        "settings": settings,
    }
    return json.dumps(known | found) + "\n"


COMPRESSION = {"rows": {"lz4": {"left": 0.5, "ns": 2.5}}}


def test_figures_are_held_to_their_targets(tmp_path: Path) -> None:
    one, three = run_of(1.0, 100.0, 90.0, 0.0), run_of(0.36, 150.0, 200.0, 512.0)
    runs = {size: {"1": [one] * 3, "3": [three] * 3} for size in ("small", "large")}
    spread = {"median": 0.05, "low": 0.04, "high": 0.06}
    media = {"1000000": {n: {"seconds": spread, "cpu": spread} for n in ("flight", "shuffle")}}
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "cluster.jsonl").write_text(
        document("hosts", {"hosts": [1, 3]}, runs=runs)
        + document("media", {"hosts": 3}, rounds=media, compression=COMPRESSION)
    )
    assert report.main(["--docs", str(tmp_path)]) == 0
    text = (tmp_path / "benchmarks-cluster.md").read_text()
    pair = "| 3 hosts against 1: "
    share = "state of the largest host, of an equal share"
    assert f"{pair}{share} | ≤ 1.15 × | 1.08 × | 3 | 1.08–1.08 | yes |" in text
    cpu = "CPU, same work, large batches"
    assert f"{pair}{cpu} | ≤ 1.4 × | 1.50 × | 3 | 1.50–1.50 | no |" in text
    assert f"{pair}a small batch takes longer by | ≤ 150 ms | 110 ms | 3 | 110–110 | yes |" in text
    assert "| rows | lz4 | 0.50 | 2.5 |" in text
    # Six times one megabyte in 50 ms.
    assert "| 1 | flight | 50.0 (40.0–60.0) | 50.0 (40.0–60.0) | 120 | 8.33 |" in text


def line(event: str, second: float, **more: object) -> str:
    stamp = datetime.fromtimestamp(1e9 + second, UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"event": event, "timestamp": stamp, **more}) + "\n"


def committed(number: int, second: float, hosts: int, took: int = 100, epoch: int = 0) -> str:
    times = {"enter_ms": 10, "job_ms": took - 20, "commit_ms": 10}
    known = {"batch": number, "epoch": epoch, "fetched": 1000, "hosts": hosts}
    return line("batch committed", second, **known, **times)


def test_batches_around_a_change_are_told_apart(tmp_path: Path) -> None:
    log = tmp_path / "runtime.log"
    before = [committed(n, n, 3) for n in range(12)]
    # A host is lost at 12.0 s; the attempt fails after three seconds, the next one takes 300 ms.
    lost = [
        line("batch attempt failed", 15.0),
        committed(12, 15.3, 2, took=3300),
    ]
    after = [committed(n, n + 4, 2, took=110) for n in range(13, 17)]
    dealt = [committed(17, 21.0, 2, took=500, epoch=1)]
    settled = [committed(n, n + 4, 2, epoch=1) for n in range(18, 40)]
    unfinished = '{"event": "batch comm'
    log.write_text("".join(("text\n", *before, *lost, *after, *dealt, *settled, unfinished)))
    batches = changes.read_batches(log)
    assert [b.number for b in batches] == list(range(40))
    found = changes.figures(batches, 11, 1e9 + 12.0, 12)
    assert found == pytest.approx(
        {
            "neighbours_ms": 100,
            "first_ms": 300,
            "first": 3.0,
            "dealt_ms": 500,
            "dealt": 5.0,
            "next": 1.0,
            "worst": 1.1,
            "fetched_mb": 0.002,
            "wait_s": 3.0,
        }
    )
    runs = {"lost": [{**found, "state_mb": 1.0}]}
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "cluster.jsonl").write_text(document("changes", {}, runs=runs))
    assert report.main(["--docs", str(tmp_path)]) == 0
    text = (tmp_path / "benchmarks-cluster.md").read_text()
    # A single run is marked as such.
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| a host was lost")]
    shown = {row[0].partition(": ")[2]: (*row[2:4], row[-1]) for row in rows}
    assert shown["first batch"] == ("3.00 ×", "1", "undecided |")
    assert shown["batch that assigns partitions to hosts again"] == ("5.00 ×", "1", "no |")
    assert shown["next ten batches, median"] == ("1.00 ×", "1", "undecided |")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["changes", "--rounds", "1", "--rows", "500", "--before", "4", "--pace", "0.5"],
        ["hosts", "--hosts", "2", "--rounds", "1", "--rows", "1000"],
        ["meeting", "--tasks", "3", "--rounds", "2"],
        ["media", "--hosts", "2", "--rounds", "2", "--repeats", "1", "--sizes", "0", "80000"],
    ],
    ids=lambda a: a[0],
)
def test_they_run(arguments: list[str], tmp_path: Path) -> None:
    module, *options = arguments
    argv = [sys.executable, "-m", f"benchmarks.cluster.{module}", "--json", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [text for text in done.stdout.splitlines() if text.startswith("{")]
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "cluster.jsonl").write_text(line + "\n")
    assert report.main(["--docs", str(tmp_path)]) == 0

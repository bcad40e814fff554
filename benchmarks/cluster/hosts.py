"""Cost of the same work on one, two and three hosts that share nothing but an object store.

`python -m benchmarks.cluster.hosts [--json] [--hosts 1 2 3] [--rounds 3] [--rows 20000]`

Hosts are executors with a core and a directory each, on one machine (Spark's
``local-cluster[n,1,1024]``); the store is a folder. So throughput can't grow with hosts here. The
benchmark measures the cost of more hosts: CPU time of all processes, the time of a batch, bytes
sent between hosts, and bytes stored by each. Six queries join three of ten streams each
(``benchmarks.runtime.workload``). Small batches have ten rows of each stream, large ones ``--rows``
of all streams together. Numbers of hosts alternate. All results are compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyspark

from anabranch_client.replay.scenario import RecordedStream
from benchmarks.cluster.surroundings import environment
from benchmarks.command import Benchmark, made, run_benchmark, spread
from benchmarks.kinds import KindMeter
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime import workload
from benchmarks.session import session

QUERIES = 6
#: Numbers of unmeasured and of measured batches.
WARM_UP = 4
MEASURED = {"small": 16, "large": 8}
#: Measures of a run -> unit and number of digits.
FIGURES = {
    "batch_ms": "median batch, ms",
    "cpu_ms": "CPU of all processes per batch, ms",
    "sent_kib": "sent between hosts per batch, KiB",
    "largest_share": "largest host's part of what all hosts store",
}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 3], help="each in turn")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each")
    parser.add_argument("--rows", type=int, default=20_000, help="of a large batch")
    parser.add_argument("--parallelism", type=int, default=12, help="partitions per store")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all rounds; return the figures by size of batches, number of hosts and round."""
    rows = {"small": workload.STREAMS * 10, "large": options.rows}
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for size, of_batch in rows.items():
        batches = WARM_UP + MEASURED[size]
        each = of_batch // workload.STREAMS * batches
        streams = workload.generate(home / f"input-{size}", each, batches)
        runs: dict[str, list[dict[str, float]]] = defaultdict(list)
        for number in range(options.rounds):
            # Every second round has the reverse order, so that no number of hosts always runs on
            # the warmest machine.
            for hosts in options.hosts[:: 1 if number % 2 == 0 else -1]:
                below = made(home / f"{size}-{number}-{hosts}")
                runs[str(hosts)].append(_run(below, streams, hosts, size, options.parallelism))
                tell(f"{size} batches, {hosts} hosts: {runs[str(hosts)][-1]}")
        found[size] = dict(runs)
    return {"runs": found}


def _run(
    home: Path, streams: tuple[RecordedStream, ...], hosts: int, size: str, parallelism: int
) -> dict[str, float]:
    queries, cache = workload.queries(QUERIES), f"cache-{uuid.uuid4().hex}"
    batches = WARM_UP + MEASURED[size]
    with (
        environment(
            ANABRANCH_OBJECT_STORE=(home / "store").as_uri(),
            ANABRANCH_CACHE_DIRECTORY=cache,
        ),
        session(
            home / "system",
            streams,
            queries,
            master=f"local-cluster[{hosts},1,1024]",
            parallelism=parallelism,
            epoch_batches=1_000_000,
        ) as system,
    ):
        system.start()
        system.gate(WARM_UP)
        system.wait_for_batches(WARM_UP)
        meter = KindMeter(system.roots)
        meter.start()
        meter.begin()
        system.gate(batches)
        system.wait_for_batches(batches)
        meter.stop()
        text = (system.pipeline.spec.logs / "runtime.log").read_text(encoding="utf-8")
        # Executors' working directories are below Spark's own.
        work = Path(pyspark.__file__).parent / "work"
        stored = [_bytes(path) for path in work.glob(f"*/*/{cache}/segments")]
        system.finish(queries)
    log = [json.loads(one) for one in text.splitlines() if '"batch committed"' in one][WARM_UP:]
    times = sorted(b["enter_ms"] + b["job_ms"] + b["commit_ms"] for b in log)
    return {
        "batch_ms": times[len(times) // 2],
        "cpu_ms": round(1000 * meter.cpu_seconds / len(log), 1),
        "sent_kib": round(sum(b.get("sent", 0) for b in log) / len(log) / 1024, 1),
        "largest_share": round(max(stored) / max(sum(stored), 1), 3),
    }


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.pack"))


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: one per size of batches, with a row per number of hosts."""
    found = []
    for size, runs in entry["runs"].items():
        rows = []
        for hosts, several in sorted(runs.items(), key=lambda item: int(item[0])):
            digits = {"largest_share": 3}
            cells = [shown(spread([r[f] for r in several], 3), digits.get(f, 1)) for f in FIGURES]
            first = [r["cpu_ms"] for r in runs[min(runs, key=int)]]
            ratio = sorted(a["cpu_ms"] / b for a, b in zip(several, first, strict=True))
            rows.append((hosts, *cells, f"{ratio[len(ratio) // 2]:.2f}"))
        columns = ("hosts", *FIGURES.values(), "CPU against the first row")
        found.append(Grid(f"{size} batches", columns, tuple(rows)))
    return found


BENCHMARK = Benchmark("hosts", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("cluster", BENCHMARK, None, lambda _: None))

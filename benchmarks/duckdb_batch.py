"""Lower bound of the cost of the queries: DuckDB reads the same files and writes the same results,
in one batch.

DuckDB has all of the input at once, so it can choose a plan for exactly this input, and stores
nothing for later tuples. It runs in a separate process, so that the CPU time and peak memory of the
process (including the interpreter) are DuckDB's alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from anabranch_client.replay.tpch import QUERIES, TABLES
from benchmarks.report.figures import ROOT


@dataclass(frozen=True, slots=True)
class Batch:
    """Cost of all queries in DuckDB; ``results``: query -> number of rows."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    results: dict[str, int]


def run(inputs: Path, results: Path, threads: int) -> Batch:
    """Run the queries over ``inputs/<table>.parquet`` in a new process, which
    writes ``results``.
    """
    argv = [
        *(sys.executable, "-m", "benchmarks.duckdb_batch"),
        *(str(inputs), str(results), "--threads", str(threads)),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT)
    return Batch(**json.loads(done.stdout))


def main(arguments: Sequence[str] | None = None) -> None:
    """Main program of the new process."""
    parser = argparse.ArgumentParser(description="the five queries as one batch of DuckDB")
    parser.add_argument("inputs", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    counts = {}
    began, cpu = time.perf_counter(), time.process_time()
    with duckdb.connect(config={"threads": options.threads}) as connection:
        for table in TABLES:
            connection.read_parquet(str(options.inputs / f"{table}.parquet")).create_view(table)
        for query in QUERIES:
            rows = connection.sql(query.sql)
            rows.write_parquet(str(options.results / f"{query.name}.parquet"))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    with duckdb.connect() as connection:
        for query in QUERIES:
            written = connection.read_parquet(str(options.results / f"{query.name}.parquet"))
            counts[query.name] = len(written)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        # The system reports kilobytes, except macOS, which reports bytes.
        "peak_rss_bytes": peak if sys.platform == "darwin" else peak * 1024,
        "results": counts,
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()

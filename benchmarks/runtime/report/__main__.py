"""Writes ``docs/benchmarks-runtime.md`` from saved figures.

``python -m benchmarks.runtime.report [--docs docs]`` reads ``docs/benchmarks/runtime.jsonl``, one
line per run of one benchmark, and shows the newest line of each benchmark (:mod:`newest`). Equal
lines give an equal page, byte for byte.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report.charts import Line, Row, grouped, lines
from benchmarks.report.figures import docs_folder, tell
from benchmarks.report.sections import section
from benchmarks.report.targets import paragraphs
from benchmarks.runtime import adaptation, pacing, sharing
from benchmarks.runtime.__main__ import BENCHMARKS
from benchmarks.runtime.newest import newest, runs_of
from benchmarks.runtime.report.targets import targets

_MEBI = 2**20
_INTRODUCTION = """\
# Benchmarks of the runtime

Made by `make bench-runtime` (`python -m benchmarks.runtime.report`) from the lines in
[`benchmarks/runtime.jsonl`](benchmarks/runtime.jsonl), the newest of each benchmark; parts that it
did not measure come from the newest line that has them. Change the benchmarks, not this file.

Figures are medians over interleaved runs with their range in brackets. The figures of a table were
measured in one run (a workload, where more than one run is named), so compare within tables:
absolutes say as much about the machine and about what else ran on it. Results are compared with the
oracle's in every run; a run with other results reports nothing. Unless stated otherwise,
everything runs as users run it: Redis, service and Spark as processes, each batch's results in
files and its state durable before the next begins.
"""
_HEADINGS = {
    "sharing": "Joint, shared and individual plans",
    "separate": "One pipeline or one for each query",
    "queries": "More queries",
    "rewire": "Rewires",
    "state_size": "Large state",
    "fixed_cost": "Fixed cost of a batch",
    "latency": "Latency",
    "ingest": "Directories of files, and Spark's sources",
    "adaptation": "Adaptation",
    "aggregates": "Aggregating queries",
    "updates": "Updates",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    docs = docs_folder("runtime", arguments)
    lines = docs / "benchmarks" / "runtime.jsonl"
    found = newest(lines.read_text(encoding="utf-8").splitlines()) if lines.is_file() else {}
    if not found:
        tell(f"{docs / 'benchmarks'} has no figures: run make bench-runtime")
        return 1
    write_report(docs, found)
    return 0


def write_report(docs: Path, found: dict[str, dict[str, Any]]) -> None:
    """Write ``benchmarks-runtime.md`` and its charts; ``found``: benchmark -> its figures."""
    parts = [_INTRODUCTION]
    wanted = targets(found)
    if wanted.rows:
        parts += ["## Targets\n", *paragraphs(wanted)]
    for benchmark in BENCHMARKS:
        if benchmark.name not in found:
            continue
        entry = found[benchmark.name]
        parts += section(
            docs,
            _HEADINGS[benchmark.name],
            benchmark,
            entry,
            _charts(benchmark.name, entry),
            notes=[inspect.getdoc(pacing) or ""] if benchmark.name == "latency" else (),
            runs=runs_of(entry),
        )
    (docs / "benchmarks-runtime.md").write_text("\n".join(parts), encoding="utf-8")


def _charts(part: str, entry: dict[str, Any]) -> dict[str, str]:
    """Return the charts of a benchmark: name -> SVG."""
    if part == "adaptation":
        return adaptation.charts(entry)
    if part == "sharing":
        return {"sharing": _sharing(entry), "sharing-state": _sharing_state(entry)}
    if part == "queries" and "growth" in entry:
        return {"queries": _growth(entry)}
    if part == "state_size":
        return {"state-size": _sizes(entry)}
    return {}


def _in_all(works: Sequence[dict[str, Any]]) -> list[str]:
    """Return the optimisers with which all of these workloads have run."""
    return [n for n in works[0]["optimizers"] if all(n in w["optimizers"] for w in works)]


def _sharing(entry: dict[str, Any]) -> str:
    works = entry["workloads"]
    names = _in_all(works)
    rows = [
        Row(
            sharing.name_of(w),
            tuple(w["optimizers"][n]["tuples_per_s_without_enter"]["median"] / 1e3 for n in names),
        )
        for w in works
    ]
    return grouped("Thousands of input tuples per second", names, rows)


def _sharing_state(entry: dict[str, Any]) -> str:
    works = entry["workloads"]
    names = _in_all(works)
    rows = [
        Row(
            sharing.name_of(w),
            tuple(w["optimizers"][n]["state_bytes"]["median"] / _MEBI for n in names),
        )
        for w in works
    ]
    return grouped("State in MiB", names, rows)


def _growth(entry: dict[str, Any]) -> str:
    counts = entry["growth"]["counts"]
    points = tuple((one["queries"], one["tuples_per_s"]["median"]) for one in counts)
    line = Line("throughput", points)
    return lines("Throughput by number of queries", "queries", "input tuples/s", [line])


def _sizes(entry: dict[str, Any]) -> str:
    series = [
        Line(
            through,
            tuple(
                (one["stored"] / 1e6, one["tuples_per_s"]["median"])
                for one in entry[through]["sizes"]
            ),
        )
        for through in ("engine", "spark")
        if through in entry
    ]
    title = "Throughput by stored tuples"
    return lines(title, "millions of stored tuples", "tuples/s", series)


if __name__ == "__main__":
    sys.exit(main())

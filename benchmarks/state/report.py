"""Writes ``docs/benchmarks-state.md`` from saved figures.

``python -m benchmarks.state.report [--docs docs]`` reads ``docs/benchmarks/state.jsonl``, one line
per run of one benchmark, and shows the newest line of each benchmark. Equal lines give an equal
page, byte for byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report.charts import Line, lines
from benchmarks.report.figures import docs_folder, newest, tell
from benchmarks.report.sections import section
from benchmarks.report.targets import paragraphs
from benchmarks.state import amplification, budgets, caps, crossover, operations, sensitivity
from benchmarks.state.targets import targets

PARTS = {
    "Operations": operations.PART,
    "Amplification": amplification.PART,
    "Complete results with little memory": caps.PART,
    "Multi-way join and binary joins": budgets.PART,
    "Crossover": crossover.PART,
    "Batches and caches": sensitivity.PART,
}
#: Benchmark -> note with the paper's figures, for comparison.
NOTES: dict[str, Callable[[dict[str, Any]], str]] = {
    "caps": caps.note,
    "crossover": crossover.note,
    "sensitivity": sensitivity.note,
}
_INTRODUCTION = """\
# Benchmarks of the state store

Made by `python -m benchmarks.state.report` from the lines in
[`benchmarks/state.jsonl`](benchmarks/state.jsonl), the newest of each benchmark. Change the
benchmarks, not this file. [state.md](state.md#backends) describes the backends.

Figures are medians where something is repeated. The figures of a table were measured in one run, so
compare within tables: absolutes say as much about the machine and about what else ran on it (see
the load). Every run's results are compared with DuckDB's.
"""
_EXPLAINED = """\
Reasons for missed targets:

- *Hits against RocksDB.* Half of a hit's time is spent on matching, half on gathering six columns
  of rows that are scattered over their segments; RocksDB has each row in one place. In larger
  batches matching is cheaper per probe.
- *Misses where state does not fit.* Batches of hits and of misses alternate. Gathering all columns
  of ten thousand rows reads most pages of the state, so the filters have been evicted when the next
  misses need them; in a series of misses alone they stay in memory.
- *Space amplification at its peak.* Merged segments stay until the commit that names the result of
  their merge. A merge of all segments of a table doubles its size until then; this concerns a few
  of a thousand commits. Merging at most a third of a table at once would keep it below 1.3, but
  each probe would read three times as many segments.
- *A quarter of the data.* Beyond the memory of a bare process the join needs some 100 MB, whatever
  the state: a piece of results for each step, of a hundred columns, and the batch. It is killed
  where a quarter of the data is less than that; a quarter of the in-memory operator's need was
  enough.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    docs = docs_folder("state", arguments)
    found = newest(docs, "state")
    if not found:
        tell(f"{docs / 'benchmarks'} has no figures of the state store")
        return 1
    write_report(docs, found)
    return 0


def write_report(docs: Path, found: dict[str, dict[str, Any]]) -> None:
    """Write ``benchmarks-state.md`` and its charts; ``found``: benchmark -> its figures."""
    parts = [_INTRODUCTION]
    wanted = targets(found)
    if wanted.rows:
        parts += ["## Targets\n", *paragraphs(wanted), _EXPLAINED]
    for heading, part in PARTS.items():
        entry = found.get(part.name)
        if entry is None:
            continue
        notes = [NOTES[part.name](entry)] if part.name in NOTES else []
        parts += section(docs, heading, part, entry, charts(part.name, entry), notes)
    (docs / "benchmarks-state.md").write_text("\n".join(parts), encoding="utf-8")


def charts(part: str, entry: dict[str, Any]) -> dict[str, str]:
    """Return the charts of a benchmark: name -> SVG."""
    if part == "caps":
        series = [
            Line(
                f"{one['kind']}, {one['share']:g} of the {one.get('of', 'need')}",
                tuple((seconds, results / 1e6) for seconds, _, results in one["points"]),
            )
            for one in entry["runs"]
        ]
        title = "Results over time, by backend and share of the need"
        return {"state-caps": lines(title, "seconds", "millions of results", series)}
    if part == "budgets":
        series = [
            Line(
                name,
                tuple(
                    (one["share"], one["seconds"])
                    for one in entry["runs"]
                    if one["operator"] == name and one["ended"] == "done"
                ),
            )
            for name in ("multi-way", "best tree")
        ]
        title = "Run time by memory budget"
        return {"state-budgets": lines(title, "share of the state", "seconds", series)}
    if part == "sensitivity":
        batches = tuple((one["batch"] / 1000, one["seconds"]) for one in entry["by_batch"])
        caches = tuple(
            (one["share"], one["seconds"]) for one in entry["by_cache"] if one["ended"] == "done"
        )
        batch = [Line("multi-way", batches)]
        cache = [Line("multi-way", caches)]
        return {
            "state-batches": lines("Run time by batch", "thousand tuples", "seconds", batch),
            "state-caches": lines("Run time by cache", "share of the state", "seconds", cache),
        }
    return {}


if __name__ == "__main__":
    sys.exit(main())

"""``docs/benchmarks-nexmark.md`` from saved figures.

``python -m benchmarks.nexmark report [--docs docs]`` reads ``docs/benchmarks/nexmark.jsonl``, one
line per run of one part, and shows the newest of each. Equal lines give equal bytes.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.nexmark import exact, together
from benchmarks.report.figures import ROOT, newest, tell
from benchmarks.report.provenance import provenance
from benchmarks.report.sections import section

_INTRODUCTION = """\
# Nexmark

Made by `make bench-nexmark` (`python -m benchmarks.nexmark report`) from the newest lines in
[`benchmarks/nexmark.jsonl`](benchmarks/nexmark.jsonl). Change the benchmarks, not this file.

The events are made after Nexmark's published model: of 50 events 1 is a person, 3 are auctions and
46 are bids, half of them on a hot auction. All 24 queries are registered as statements of
[SQL](sql.md), with parts, views, windows, rankings and a table where the query has them.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description="docs/benchmarks-nexmark.md from saved figures")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the report")
    docs = parser.parse_args(arguments).docs
    found = newest(docs, "nexmark")
    if "exact" not in found:
        tell(f"{docs / 'benchmarks'} has no answers of Nexmark's queries")
        return 1
    parts = [_INTRODUCTION, *_exact(found["exact"])]
    if together.BENCHMARK.name in found:
        entry = found[together.BENCHMARK.name]
        parts += section(docs, "At once", together.BENCHMARK, entry, {}, findings(entry))
    (docs / "benchmarks-nexmark.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def _exact(entry: dict[str, Any]) -> list[str]:
    about = inspect.getdoc(exact) or ""
    shown = about.replace(":class:`tests.support.combined.pipeline.Combined`", "`Combined`")
    parts = ["## Exactness\n", shown.replace("``", "`") + "\n", provenance(entry)]
    for grid in exact.tables(entry):
        parts += [f"*{grid.title}*\n", grid.markdown()]
    return parts


def findings(entry: dict[str, Any]) -> list[str]:
    """The result in words; none without single queries."""
    if not entry["singles"]:
        return []
    ratio, count = entry["times"]["median"], len(entry["joins"])
    return [
        f"*Result.* {count} join queries in one pipeline took"
        f" {entry['together']['cpu_seconds']['median']:.1f} s of CPU, in a pipeline each"
        f" {entry['sum_of_singles']['median']:.1f} s: {ratio:.1f} times as much. DuckDB took"
        f" {entry['duckdb_cpu_seconds']['median']:.1f} s for one run of each over the whole input,"
        " without batches, files and state."
    ]

"""Writes ``docs/benchmarks-rivals.md`` from saved figures.

``python -m benchmarks.rivals report [--docs docs]`` reads ``docs/benchmarks/rivals.jsonl`` and
shows the newest line of each scale, and of rules. Equal lines give an equal page, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.report.figures import docs_folder, tell
from benchmarks.report.grids import Grid
from benchmarks.report.sections import section
from benchmarks.report.targets import grid, paragraphs
from benchmarks.rivals import rules, tpch

_INTRODUCTION = """\
# Beside other engines

Made by `make bench-rivals` (`python -m benchmarks.rivals report`) from the newest lines in
[`benchmarks/rivals.jsonl`](benchmarks/rivals.jsonl). Change the benchmarks, not this file.
Nexmark's queries beside Flink are in [benchmarks-nexmark.md](benchmarks-nexmark.md#beside-flink),
properties of the engines in [compared.md](compared.md).

## Targets
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    docs = docs_folder("rivals", arguments)
    saved = docs / "benchmarks" / "rivals.jsonl"
    joins: dict[float, dict[str, Any]] = {}
    detection: dict[str, Any] | None = None
    for line in saved.read_text(encoding="utf-8").splitlines() if saved.is_file() else ():
        entry = json.loads(line)
        if entry["part"] == tpch.BENCHMARK.name:
            joins[entry["settings"]["scale"]] = entry
        else:
            detection = entry
    if not joins:
        tell(f"{docs / 'benchmarks'} has no figures of other engines")
        return 1
    entries = [joins[scale] for scale in sorted(joins)]
    parts = [_INTRODUCTION, *paragraphs(grid(t for e in entries for t in tpch.targets(e)))]
    grids = [one for entry in entries for one in tpch.tables(entry)]
    shown = replace(tpch.BENCHMARK, tables=partial(_made, grids))
    chart = {"rivals-joins": tpch.chart(entries[0])}
    parts += section(docs, "Five TPC-H joins", shown, entries[-1], chart, runs=entries)
    if detection is not None:
        chart = {"rivals-rules": rules.chart(detection)}
        parts += section(docs, "Detection rules", rules.BENCHMARK, detection, chart)
    (docs / "benchmarks-rivals.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def _made(grids: list[Grid], _: dict[str, Any]) -> list[Grid]:
    return grids

"""``docs/benchmarks-dppick.md`` from saved figures: ``python -m benchmarks.dppick --report``.

Reads ``docs/benchmarks/dppick.jsonl``, one line per run of one benchmark, and shows the newest of
each. Equal lines give equal bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.dppick import ablations, decisions, drifting, orders, sweeps
from benchmarks.dppick.targets import targets
from benchmarks.report.figures import tell
from benchmarks.report.sections import section

if TYPE_CHECKING:
    from pathlib import Path

PARTS = {
    "TPC-DS from 24 initial orders": orders,
    "Ablations": ablations,
    "Period and length": sweeps,
    "Drifting streams": drifting,
    "Decisions": decisions,
}
_INTRODUCTION = """\
# Benchmarks of probe orders

Made by `make bench-dppick` (`python -m benchmarks.dppick --report`) from the lines in
[`benchmarks/dppick.jsonl`](benchmarks/dppick.jsonl), the newest of each benchmark. Change the
benchmarks, not this file.

One multi-way join operator (`benchmarks.umjoin`, state in memory) whose probe orders are chosen
while it runs: dpPick, its rivals and the exact search over visited sets
(`anabranch_planner.order`), on forecasts of what was counted (`anabranch_planner.forecast`). The
cost is probes plus matches. A period is a number of batches, so that counts and orders repeat. Run
times are CPU seconds of the one process, since others worked on the same machine; they include
statistics and decisions. Every run's
number of results is compared with DuckDB's; a run with another reports nothing. What shares a table
was measured in one run, in turns, so compare within tables.
"""


def report(docs: Path) -> int:
    """Write the page and its charts below ``docs``; returns the exit code."""
    saved = docs / "benchmarks" / "dppick.jsonl"
    found: dict[str, dict[str, Any]] = {}
    for line in saved.read_text(encoding="utf-8").splitlines() if saved.is_file() else ():
        entry = json.loads(line)
        found[entry["part"]] = entry
    if not found:
        tell(f"{docs / 'benchmarks'} has no figures: run make bench-dppick")
        return 1
    parts = [_INTRODUCTION, "## Targets\n", targets(found).markdown(), _EXPLAINED]
    for heading, module in PARTS.items():
        entry = found.get(module.PART.name)
        if entry is not None:
            charts = module.charts(entry) if hasattr(module, "charts") else {}
            parts += section(docs, heading, module.PART, entry, charts)
    (docs / "benchmarks-dppick.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


_EXPLAINED = "\n"

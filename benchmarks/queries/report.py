"""``docs/benchmarks-queries.md`` from saved figures.

``python -m benchmarks.queries.report [--docs docs]`` reads ``docs/benchmarks/queries.jsonl``, one
line per run of one benchmark, and shows the newest of each (:data:`APART`). Equal lines give equal
bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.queries import batches, churn, epochs, live, registration
from benchmarks.report.figures import ROOT, tell
from benchmarks.report.grids import Grid
from benchmarks.report.sections import section

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = {
    "Registration": registration.BENCHMARK,
    "Epochs": epochs.BENCHMARK,
    "Batches": batches.BENCHMARK,
    "Live load": live.BENCHMARK,
    "Churn": churn.BENCHMARK,
}
#: Settings by which runs of a benchmark are told apart: of each the newest is shown.
APART = {"live": "queries", "churn": "steady_minutes"}
#: The most queries with which the system is to keep up with its load, on a small machine.
KEPT_UP = 1000
_INTRODUCTION = """\
# Benchmarks of many queries

Made by `python -m benchmarks.queries.report` from the lines in
[`benchmarks/queries.jsonl`](benchmarks/queries.jsonl), the newest of each benchmark. Change the
benchmarks, not this file. The queries join three to five of 50 streams; seven of ten aliases have a
filter of their own, so hardly any two queries are alike.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description="docs/benchmarks-queries.md from saved figures")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the report")
    docs = parser.parse_args(arguments).docs
    saved = docs / "benchmarks" / "queries.jsonl"
    found: dict[str, dict[float, dict[str, Any]]] = {}
    for line in saved.read_text(encoding="utf-8").splitlines() if saved.is_file() else ():
        entry = json.loads(line)
        name = entry["part"]
        setting = entry["settings"][APART[name]] if name in APART else 0
        found.setdefault(name, {})[setting] = entry
    if not found:
        tell(f"{docs / 'benchmarks'} has no figures of many queries")
        return 1
    parts = [_INTRODUCTION, "## Targets\n", targets(found).markdown()]
    for heading, part in PARTS.items():
        if part.name in found:
            runs = [entry for _, entry in sorted(found[part.name].items())]
            grids = [grid for entry in runs for grid in part.tables(entry)]
            shown = replace(part, tables=partial(_made, grids))
            parts += section(docs, heading, shown, runs[-1], {}, runs=runs)
    (docs / "benchmarks-queries.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def _made(grids: list[Grid], _: dict[str, Any]) -> list[Grid]:
    """Tables that are made already, of several runs."""
    return grids


def targets(found: dict[str, dict[float, dict[str, Any]]]) -> Grid:
    """What was wanted, and what was found at the largest number of queries that was measured."""
    rows: list[tuple[str, ...]] = []
    levels = found.get("registration", {}).get(0, {}).get("levels", [])
    if levels:
        least, most = levels[0], levels[-1]
        at = f"{least['queries']:,} → {most['queries']:,} queries"
        growth = most["cpu_ms"] / least["cpu_ms"]
        rows += [
            (f"CPU of a registration, {at}", "≤ 1.5 ×", f"{growth:.2f} ×", _met(growth <= 1.5)),
            _row(f"CPU of a registration at {most['queries']:,}, ms", 20, most["cpu_ms"]),
            (
                f"registrations of 8 clients at {most['queries']:,}, per second",
                "≥ 50, none fails",
                f"{most['per_second']:.0f}, {most['failed']} failed",
                _met(most["per_second"] >= 50 and not most["failed"]),
            ),
            _row(
                f"CPU of a page of 100 queries at {most['queries']:,}, ms",
                20,
                most["page_cpu_ms"][registration.PAGE],
            ),
            _row("list of 200 epochs, ms", 50, most["lists_ms"]["/v1/epochs?limit=200"]),
        ]
    levels = found.get("epochs", {}).get(0, {}).get("levels", [])
    if levels:
        most = levels[-1]
        at = f"{most['queries']:,} queries"
        rows += [
            _row(f"an epoch without a change, {at}, s", 0.1, most["same"]["seconds"]),
            _row(f"one query more, {at}, s", 0.3, most["one more"]["seconds"]),
            _row(f"all rates change, {at}, s", 5, most["rates"]["seconds"]),
            _row(f"its gap, {at}, %", 1, 100 * (1.0 if most["gap"] is None else most["gap"])),
            _row(f"other requests meanwhile, {at}, p99, ms", 50, most["waits_ms"]["p99"]),
        ]
    busy = [c for c in found.get("batches", {}).get(0, {}).get("cases", ()) if c["case"] == "busy"]
    if busy:
        what = f"CPU of a batch that concerns all of {busy[-1]['queries']:,} queries, s"
        rows.append(_row(what, 1, busy[-1]["cpu_s"]["median"]))
    for _, run in sorted(found.get("live", {}).items()):
        rows += _of_load(run)
    for minutes, run in sorted(found.get("churn", {}).items()):
        what = f"{minutes:g} minutes of {churn.STEADY} queries" if minutes else "churn"
        rows += [
            (
                f"{what}: growth of {name}",
                f"≤ {churn.FLAT} ×",
                f"{ratio:.2f} ×",
                _met(ratio <= churn.FLAT),
            )
            for name, ratio in churn.grown(run).items()
        ]
    return Grid("targets", ("target", "wanted", "found", "met"), tuple(rows), texts=1)


def _of_load(run: dict[str, Any]) -> list[tuple[str, ...]]:
    """Above :data:`KEPT_UP` there are figures and nothing is wanted."""
    settings, wanted = run["settings"], run["settings"]["queries"] <= KEPT_UP
    at = f"{settings['queries']:,} queries, {settings['rate']:,.0f} rows/s"
    keeps, share = run["keeps_up"], run["planning"]
    return [
        (
            f"{at}: lag at the end, s",
            "it keeps up" if wanted else "–",
            f"{run['end']['lag_s']:.1f}, {run['half']['lag_s']:.1f} at half time",
            _met(keeps) if wanted else "–",
        ),
        (
            f"{at}: planning's part of CPU",
            f"≤ {live.PLANNING:.0%}" if wanted else "–",
            f"{share:.1%}",
            _met(share <= live.PLANNING) if wanted else "–",
        ),
    ]


def _row(what: str, most: float, found: float) -> tuple[str, ...]:
    return what, f"≤ {most:g}", f"{found:.3g}", _met(found <= most)


def _met(met: bool) -> str:
    return "yes" if met else "no"


if __name__ == "__main__":
    sys.exit(main())

"""Writes ``docs/benchmarks-queries.md`` from saved figures.

``python -m benchmarks.queries.report [--docs docs]`` reads ``docs/benchmarks/queries.jsonl``, one
line per run of one benchmark, and shows the newest line of each (:data:`APART`). Equal lines give
an equal page, byte for byte.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.queries import activation, batches, churn, epochs, live, registration
from benchmarks.report.figures import docs_folder, tell
from benchmarks.report.grids import Grid
from benchmarks.report.sections import section
from benchmarks.report.targets import SIZES, Figure, Target, Verdict, grid, paragraphs

PARTS = {
    "Registration": registration.BENCHMARK,
    "Epochs": epochs.BENCHMARK,
    "Batches": batches.BENCHMARK,
    "Activation": activation.BENCHMARK,
    "Live load": live.BENCHMARK,
    "Churn": churn.BENCHMARK,
}
#: Benchmark -> the setting that distinguishes its series of runs; the newest run of each is shown.
APART = {"live": "queries", "churn": "steady_minutes"}
#: Target: number of queries up to which the system keeps up with its load on a small machine.
KEPT_UP = 1000
_INTRODUCTION = """\
# Benchmarks of many queries

Made by `python -m benchmarks.queries.report` from the lines in
[`benchmarks/queries.jsonl`](benchmarks/queries.jsonl), the newest of each benchmark. Change the
benchmarks, not this file. The queries join three to five of 50 streams; seven of ten aliases have a
filter of their own, so hardly any two queries are alike.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    docs = docs_folder("queries", arguments)
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
    parts = [_INTRODUCTION, "## Targets\n", *paragraphs(targets(found)), *_beyond(found)]
    for heading, part in PARTS.items():
        if part.name in found:
            runs = [entry for _, entry in sorted(found[part.name].items())]
            grids = [grid for entry in runs for grid in part.tables(entry)]
            shown = replace(part, tables=partial(_made, grids))
            parts += section(docs, heading, shown, runs[-1], {}, runs=runs)
    (docs / "benchmarks-queries.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def _beyond(found: dict[str, dict[float, dict[str, Any]]]) -> list[str]:
    """Return a sentence for each run with more queries than the targets state."""
    return [
        f"There is no target for {queries:,.0f} queries: with"
        f" {run['settings']['rate']:,.0f} rows/s the lag was {run['half']['lag_s']:.1f} s at half"
        f" time and {run['end']['lag_s']:.1f} s at the end, so the system"
        f" {'kept' if run['keeps_up'] else 'did not keep'} up.\n"
        for queries, run in sorted(found.get("live", {}).items())
        if queries > KEPT_UP
    ]


def _made(grids: list[Grid], _: dict[str, Any]) -> list[Grid]:
    """Return ``grids``, the finished tables of several runs."""
    return grids


def targets(found: dict[str, dict[float, dict[str, Any]]]) -> Grid:
    """Return every target, at the largest measured number of queries; most have one measurement."""
    wanted: list[Target] = []
    levels = found.get("registration", {}).get(0, {}).get("levels", [])
    if levels:
        wanted += _of_registration(levels[0], levels[-1])
    levels = found.get("epochs", {}).get(0, {}).get("levels", [])
    if levels:
        most = levels[-1]
        at = f"{most['queries']:,} queries"
        gap = Figure.counted(100 * (1.0 if most["gap"] is None else most["gap"]))
        wanted += [
            _at_most(f"an epoch without a change, {at}", 0.1, most["same"]["seconds"], " s"),
            _at_most(f"one query more, {at}", 0.3, most["one more"]["seconds"], " s"),
            _at_most(f"all rates change, {at}", 5, most["rates"]["seconds"], " s"),
            Target(f"its gap, {at}", gap, 1, False, 2, " %"),
            _at_most(f"other requests meanwhile, {at}, p99", 50, most["waits_ms"]["p99"], " ms"),
        ]
    wanted += _of_batches(found.get("batches", {}).get(0, {}).get("cases", ()))
    for one in found.get("activation", {}).get(0, {}).get("levels", ()):
        at, answer, active = f"one rule more among {one['rules']:,}", "answer_ms", "active_s"
        wanted += [
            Target(f"answer, {at}", Figure.of(one[answer], activation.MORE), 20, False, 1, " ms"),
            Target(f"active, {at}", Figure.of(one[active], activation.MORE), 0.3, False, 2, " s"),
        ]
    for _, run in sorted(found.get("live", {}).items()):
        if run["settings"]["queries"] <= KEPT_UP:
            wanted += _of_load(run)
    for minutes, run in sorted(found.get("churn", {}).items()):
        what = f"{minutes:g} minutes of {churn.STEADY} queries" if minutes else "churn"
        wanted += [
            Target(
                f"{what}: growth of {name}",
                Figure.once(ratio, SIZES),
                churn.FLAT,
                False,
                2,
                " ×",
            )
            for name, ratio in churn.grown(run).items()
        ]
    return grid(wanted)


def _of_registration(least: dict[str, Any], most: dict[str, Any]) -> list[Target]:
    at = f"{least['queries']:,} → {most['queries']:,} queries"
    growth = Figure.once(most["cpu_ms"]).over(Figure.once(least["cpu_ms"]))
    queries, epochs_list = f"{most['queries']:,}", most["lists_ms"]["/v1/epochs?limit=200"]
    return [
        Target(f"CPU of a registration, {at}", growth, 1.5, False, 2, " ×"),
        _at_most(f"CPU of a registration at {queries}", 20, most["cpu_ms"], " ms"),
        Target(
            f"registrations of 8 clients at {queries}, per second, and none fails",
            Figure.once(most["per_second"]),
            50,
            True,
            0,
            also=Verdict.NO if most["failed"] else Verdict.YES,
            note=f"{most['failed']} failed",
        ),
        _at_most(
            f"CPU of a page of 100 queries at {queries}",
            20,
            most["page_cpu_ms"][registration.PAGE],
            " ms",
        ),
        _at_most("list of 200 epochs", 50, epochs_list, " ms"),
    ]


def _of_batches(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Return the targets on the CPU time of a batch: with many queries, and relative to few."""
    busy = [case for case in cases if case["case"] == "busy"]
    wanted = []
    if busy:
        what = f"CPU of a batch that concerns all of {busy[-1]['queries']:,} queries"
        cpu = Figure.of(busy[-1]["cpu_s"], batches.ROUNDS)
        wanted.append(Target(what, cpu, 1, False, 2, " s"))
    for kind, most in (("alike", 3), ("rules", 3), ("silent", 1.2)):
        some = [case for case in cases if case["case"] == kind]
        if len(some) < 2:
            continue
        least, largest = (Figure.of(c["cpu_s"], batches.ROUNDS) for c in (some[0], some[-1]))
        results = f"results {some[0]['results']:,} → {some[-1]['results']:,}"
        what = f"CPU of a batch, {kind}, {some[0]['queries']:,} → {some[-1]['queries']:,} queries"
        wanted.append(Target(what, largest.over(least), most, False, 2, " ×", note=results))
    return wanted


def _of_load(run: dict[str, Any]) -> list[Target]:
    """Return the targets of a live run."""
    settings = run["settings"]
    at = f"{settings['queries']:,} queries, {settings['rate']:,.0f} rows/s"
    lag, before = run["end"]["lag_s"], run["half"]["lag_s"]
    allowed = round(live.GROWTH * before + live.MORE, 1)
    note = f"{before:.1f} s at half time"
    planning = Figure.once(100 * run["planning"])
    what = f"{at}: planning's part of CPU"
    return [
        Target(f"{at}: lag at the end", Figure.once(lag), allowed, False, 1, " s", note=note),
        Target(what, planning, 100 * live.PLANNING, False, 1, " %"),
    ]


def _at_most(what: str, most: float, found: float, unit: str) -> Target:
    return Target(what, Figure.once(found), most, False, 2 if found < 10 else 0, unit)


if __name__ == "__main__":
    sys.exit(main())

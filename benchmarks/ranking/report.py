"""Writes ``docs/benchmarks-ranking.md`` from saved figures.

``python -m benchmarks.ranking.report [--docs docs]`` reads ``docs/benchmarks/ranking.jsonl``, one
line per run of one benchmark, and shows the newest line of each benchmark. Equal lines give an
equal page, byte for byte.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

from anabranch_contract.protocol.merging import rewrites
from benchmarks import cost_constants
from benchmarks.ranking import plans
from benchmarks.report.figures import docs_folder, newest, tell
from benchmarks.report.provenance import provenance
from benchmarks.report.sections import section

_INTRODUCTION = """\
# Benchmarks of prices of plans

Made by `make bench-ranking` (`python -m benchmarks.ranking.report`) from the newest lines in
[`benchmarks/ranking.jsonl`](benchmarks/ranking.jsonl). Change the benchmarks, not this file.
Prices: [cost model](cost-model.md).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    docs = docs_folder("ranking", arguments)
    found = newest(docs, "ranking")
    if plans.BENCHMARK.name not in found:
        tell(f"{docs / 'benchmarks'} has no ranked plans")
        return 1
    entry = found[plans.BENCHMARK.name]
    parts = [_INTRODUCTION]
    parts += section(docs, "Ranking", plans.BENCHMARK, entry, {}, [findings(entry)])
    if cost_constants.PART in found:
        parts += _constants(found[cost_constants.PART])
    (docs / "benchmarks-ranking.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def findings(entry: dict[str, Any]) -> str:
    """Return the figures on which the choice of the default objective was based."""
    means = plans.means(entry)
    before, after = means["tuples"], means["seconds and merges"]
    fitted, counted = means["seconds and merges, fitted"], means["tuples and merges"]
    compared = sum(len(one["plans"]) for one in entry["workloads"])
    return (
        f"*Result.* Over {compared} plans of {len(entry['workloads'])} workloads, the plan"
        f" chosen by `tuples` without merges, the former default, took"
        f" {_percent(before['expected regret'])} more CPU time than the best one, on the mean of"
        f" workloads (tau {before['expected tau']:.2f}). `seconds` with merges takes"
        f" {_percent(fitted['expected regret'])} more with fitted constants (tau"
        f" {fitted['expected tau']:.2f}), {_percent(after['expected regret'])} with the constants"
        f" known before any measurement (tau {after['expected tau']:.2f}), and `tuples` with"
        f" merges {_percent(counted['expected regret'])} (tau {counted['expected tau']:.2f})."
        " Prices by counted operations rank better, because the estimates of others are wrong: the"
        " sizes of sub-joins that no plan has run are estimated too large if keys are skewed."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _constants(entry: dict[str, Any]) -> list[str]:
    about = inspect.getdoc(cost_constants) or ""
    parts = ["## Constants\n", about.replace("``", "`") + "\n", _row(entry) + "\n"]
    parts.append(provenance(entry))
    for grid in cost_constants.tables(entry):
        parts += [f"*{grid.title[:1].upper()}{grid.title[1:]}*\n", grid.markdown()]
    return parts


def _row(entry: dict[str, Any]) -> str:
    """Return the price of storing a row, in units of a probe."""
    whole, batches = entry["whole"], entry["settings"]["batches"]
    times = rewrites(batches)
    probes = (whole["row"] + times * whole["rewrite"]) / whole["probe"]
    return (
        f"By whole batches a stored row costs {probes:.1f} probes after {batches} batches, in which"
        f" merges have rewritten it {times:.1f} times on average,"
        f" {whole['row'] / whole['probe']:.1f} without merges. In the workload `events` nothing is"
        " merged, since rows expire within some batches: `merge` and `rewrite` keep their previous"
        " values. Operations with equal numbers in all batches, such as writes and the batch"
        " itself, can't be distinguished."
    )


if __name__ == "__main__":
    sys.exit(main())

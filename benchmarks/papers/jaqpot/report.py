"""Writes ``docs/benchmarks-jaqpot.md`` from saved figures: ``python -m benchmarks.papers jaqpot
report``.

Reads ``docs/benchmarks/jaqpot.jsonl``, one line per run of a benchmark, and shows the newest line
of each benchmark (of ``overload``, of each workload). Equal lines give an equal page, byte for
byte.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark
from benchmarks.papers.jaqpot.freshness import RESOURCES
from benchmarks.papers.jaqpot.live import overload
from benchmarks.papers.jaqpot.policies import POLICIES
from benchmarks.papers.jaqpot.rations import budgets, cost, forests
from benchmarks.papers.jaqpot.simulation import PARTS
from benchmarks.papers.jaqpot.targets import all_targets
from benchmarks.papers.jaqpot.throughput import SHARES
from benchmarks.report.charts import Line, Row, grouped, lines
from benchmarks.report.figures import docs_folder, tell
from benchmarks.report.provenance import provenance
from benchmarks.report.sections import section
from benchmarks.report.targets import paragraphs

#: Measured benchmarks and their headings, in the order of the page.
MEASURED: dict[str, tuple[str, Benchmark]] = {
    "budgets": ("Measured: stated budgets in the runtime", budgets.BENCHMARK),
    "overload": ("Measured: lasting overload, live", overload.BENCHMARK),
    "cost": ("Measured: the cost of the policy", cost.BENCHMARK),
    "forests": ("Simulated: random shared forests", forests.BENCHMARK),
}
HEADINGS = {
    "throughput": "Simulated: throughput by resources",
    "changes": "Simulated: changing selectivities, and five streams",
    "freshness": "Simulated: freshness",
    "decisions": "Covers and decisions",
}
_INTRODUCTION = """\
# Benchmarks of limited CPU

Made by `make bench-jaqpot` (`python -m benchmarks.papers jaqpot report`) from the newest lines in
[`benchmarks/jaqpot.jsonl`](benchmarks/jaqpot.jsonl). Change the benchmarks, not this file.

There are two sorts of figures. *Measured* ones are of the runtime, with its workers, stores and
result files: in one process without Spark where budgets are stated, and live, with Spark and the
service, where input is faster than the machine. *Simulated* ones are of models: of the runtime's
probe forests, and of the paper's binary plans, whose probes are rationed by JAQPOT and its rivals
as printed in the paper (`benchmarks.papers.jaqpot.printed`). In the paper's model a probe costs
one, and stored tuples cost nothing. Plans are drawn uniformly from the ranges of the paper's
Table 3: 300 to 1200 arrivals per second, 200 to 5000 tuples in each state, selectivities of 0.01 to
0.1. The limits of simulated figures are the paper's reports of its own runs.
"""
_BLIND = """\
The figures below are of an earlier run with a shorter calm phase: all runs had the first plan, made
without statistics, and there was no rival with equal rations.
"""
_SIMULATED = """\
Missed targets of the simulation, and notes on it:

"""
_EXPLAINED = """\
- *80 % of the results at 60 % of the resources* can't be reached over linear plans of Table 3.
  GrePP is optimal among all allowances (a test compares it with a linear program), and it has 60 %.
  A probe finds a hundred partners there, so nearly all probes of a plan belong to its last half-way
  join, at the end of three of four paths, whose results per probe are the same for all. Where
  probes find about one partner or fewer, there is more choice: in the table of selectivities GrePP
  is above 80 % at a thousandth of Table 3's, with a smaller lead over the best rival.
- *Rivals* are stronger here than as printed: the less productive half of a join gets what the other
  half can't use (`BestHJP` of section 2). Even so, with all of saturation's resources they have far
  fewer results than saturation, since they divide resources without considering arrivals.
- *Table 4* misprints SBestHJP: its allowances (50 for b, 250 for ab) are GrePP's, and produce 1250
  results, not 750.
- *300 probes per second*, the paper's figure for staleness, are at most 0.3 % of what plans of
  Table 3 need. With so few, hardly any plan's predicates can be promised, and JAQPOT reports this.
  At 30 % of what a plan needs all can be promised, except with the low selectivities of Fig. 6.
- *Stale results of linear plans* only occur if states are starved, and none is at 30 %: the paths
  that GrePP selects refresh every state on their way. In bushy plans it starves one side.
- *Dividing a path's seconds.* The paper does not say how the seconds of a predicate are divided
  among the states of a path. An even division costs more than GH-WMSCP loses to an exact cover: in
  linear plans it costs nearly twice as much as the cheapest division, which gives nearly all
  seconds to the first state, since tuples that refresh it make a hundred times as many for the
  next.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    docs = docs_folder("jaqpot", arguments)
    saved = docs / "benchmarks" / "jaqpot.jsonl"
    found = saved.read_text(encoding="utf-8").splitlines() if saved.is_file() else []
    if not found:
        tell(f"{docs / 'benchmarks'} has no figures: run make bench-jaqpot")
        return 1
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for line in found:
        one = json.loads(line)
        newest[one["part"], one["settings"].get("workload", "")] = one
    simulated = newest.get(("simulation", ""))
    measured = [newest[key] for part in MEASURED for key in sorted(newest) if key[0] == part]
    parts = [_INTRODUCTION, "## Targets\n", *paragraphs(all_targets(simulated, measured))]
    parts += [_SIMULATED + _EXPLAINED] if simulated else []
    for entry in measured:
        heading, benchmark = MEASURED[entry["part"]]
        workload = entry["settings"].get("workload")
        heading += f", {workload}" if workload else ""
        notes = [_BLIND] if _is_blind(entry) else []
        parts += section(docs, heading, benchmark, entry, _measured_charts(entry), notes)
    if simulated:
        parts += _simulated(docs, simulated)
    (docs / "benchmarks-jaqpot.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def _is_blind(entry: dict[str, Any]) -> bool:
    """Whether the plans in a line of ``overload`` were made without statistics."""
    runs = entry["runs"] if entry["part"] == "overload" else ()
    return any("statistics_epoch" not in run for run in runs)


def _simulated(docs: Path, entry: dict[str, Any]) -> list[str]:
    parts = []
    for name, part in PARTS.items():
        about = (inspect.getdoc(part) or "").replace("``", "`")
        parts += [f"## {HEADINGS[name]}\n", about + "\n", provenance(entry)]
        for chart, svg in _charts(name, entry[name]).items():
            (docs / "benchmarks" / f"{chart}.svg").write_text(svg, encoding="utf-8")
            parts.append(f"![{chart}](benchmarks/{chart}.svg)\n")
        for grid in part.tables(entry[name]):
            parts += [f"*{grid.title[:1].upper()}{grid.title[1:]}*\n", grid.markdown()]
    return parts


def _measured_charts(entry: dict[str, Any]) -> Mapping[str, str]:
    drawn: dict[str, Callable[[dict[str, Any]], Mapping[str, str]]] = {"budgets": budgets.charts}
    return drawn[entry["part"]](entry) if entry["part"] in drawn else {}


def _charts(part: str, found: Any) -> dict[str, str]:
    """Return chart name -> SVG: the paper's Figs. 7 and 9."""
    if part == "throughput":
        return {f"jaqpot-{one['shape']}": _results(one) for one in found}
    if part == "freshness":
        rows = [
            Row(
                f"{one['shape']}, {one['factor']:g} windows",
                tuple(
                    100 * figures["mean"] if figures else 0.0
                    for figures in (one["stale"][RESOURCES[0]][policy] for policy in POLICIES)
                ),
            )
            for one in found
        ]
        title = f"Stale results, %, with {RESOURCES[0]} of saturation's resources (Fig. 9)"
        return {"jaqpot-stale": grouped(title, POLICIES, rows)}
    return {}


def _results(one: dict[str, Any]) -> str:
    series = [
        Line(
            policy,
            tuple(
                (float(share), 100 * figures["mean"])
                for share, figures in zip(SHARES, one["results"][policy], strict=True)
            ),
        )
        for policy in POLICIES
    ]
    title = f"Results by resources, {one['shape']} plans (Fig. 7)"
    return lines(title, "% of saturation's resources", "% of its results", series)


if __name__ == "__main__":
    sys.exit(main())

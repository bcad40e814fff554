"""Writes ``docs/benchmarks-dppick.md`` from saved figures: ``python -m benchmarks.dppick
--report``.

Reads ``docs/benchmarks/dppick.jsonl``, one line per run of one benchmark, and shows the newest line
of each benchmark. Equal lines give an equal page, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.dppick import ablations, decisions, drifting, orders, sweeps
from benchmarks.dppick.targets import targets
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.sections import section
from benchmarks.report.targets import paragraphs

PARTS = {
    "TPC-DS from 24 initial orders": orders,
    "Ablations": ablations,
    "Period and length": sweeps,
    "Drifting streams": drifting,
    "Decisions": decisions,
}
_INTRODUCTION = """\
# Benchmarks of one operator's probe orders

All figures of this page are of one multi-way join operator that only benchmarks use, in one process
without Spark; none is of a pipeline. In a pipeline the joint plan determines the probe orders; it
is replaced at an epoch or by a revision, not by this search.

Made by `make bench-dppick` (`python -m benchmarks.dppick --report`) from the lines in
[`benchmarks/dppick.jsonl`](benchmarks/dppick.jsonl), the newest of each benchmark. Change the
benchmarks, not this file.

The probe orders of the operator (`benchmarks.umjoin`, state in memory) are chosen while it runs: by
dpPick, its rivals, or the exact search over visited sets (`benchmarks.papers.dppick`), with
forecasts of the counts (`anabranch_planner.forecast`). The cost is probes plus matches. A period is
a number of batches, so that counts and orders are reproducible. Run times are CPU seconds of the
one process, since other processes ran on the same machine; they include statistics and decisions.
Every run's number of results is compared with DuckDB's; a run with another number reports nothing.
The figures of a table were measured in one run, in turns, so compare within tables.
"""
_EXPLAINED = """\
Reasons for missed targets:

- *Run time over TPC-DS.* The paper's savings can't be reached here: the table below shows how much
  the best permutation saves of the mean of all, calculated and measured. Inserts, the log and the
  results take the same time in every order, so less run time is saved than probes and matches.
  Without statistics and decisions, dpPick's run time is close to that of the order that is best in
  hindsight. Fixed is faster where its first orders are near the best, since dpPick only adds
  statistics then.
- *Statistics and decisions.* A decision takes about the same time whatever the period, nearly all
  of it for forecasts. At full speed the whole of TPC-DS lasts a second, so a period is a small part
  of a second, and decisions weigh thirty times as much as in a pipeline. Counting (which probes
  found something, which keys are new) grows with the tuples and is the larger part of the rest.
- *Greedy.* Where keys are independent and every input can be probed next (clique, star), a cheapest
  order begins with the cheapest next step, so a search can only save where greedy's estimates are
  wrong. Only in a path can cheap steps be followed by expensive ones, and only its two inner inputs
  have a choice. Where dpPick does more work than greedy, the reason is figures of steps that hardly
  ran: the search takes the order whose estimates are too low. Preferring figures that are some
  periods old to neighbours' figures made this much worse, so old figures are used last
  (`benchmarks.dppick.measures`).
- *Swaps and bursts, against no-smooth.* Forecasts remove outliers, and an abrupt change looks like
  an outlier until a second period confirms it. That costs a period after every swap and most of a
  burst; the last value alone reacts at once. No-smooth lacks only a trend, which matters little:
  the number of stored rows is known, not forecast, so both consider the growth of stores.
- *Selectivity.* This rival divides by the stored rows, which misleads where inputs have unequal
  sizes (in TPC-DS partners are proportional to rows, so all inputs rank alike). In the generated
  streams fan-outs differ more than sizes, and it is close to greedy.
- *Run time of drifting streams.* Batches are small, so most of the time is the fixed cost of a
  batch, and decisions are made every few hundredths of a second. Each run was timed once on a
  machine with several times more work than cores. dpPick and the exact search nearly always take
  the same orders, so the difference of their run times shows the noise of all ratios in that table
  (up to a third). Probes and matches are exactly reproducible; these run times decide nothing. They
  were measured once more with the held-out seed 11 on a machine without other work, for three
  graphs, constant and swap. dpPick has 0.76 and 0.63 of fixed's probes and matches, 1.00 and 0.77
  of hindsight's, 1.00 and 0.98 of greedy's; without statistics and decisions, it takes 0.85 and
  0.90 of fixed's run time, 1.16 and 1.25 of hindsight's. Statistics and decisions are a third of
  dpPick's run time (40 decisions of 5 ms in a run of 0.5 to 1.5 seconds); with them it takes 1.33
  and 1.40 of fixed's. A pipeline decides every three seconds.
"""


def report(docs: Path) -> int:
    """Write the page and its charts below ``docs``; returns the exit code."""
    saved = docs / "benchmarks" / "dppick.jsonl"
    found: dict[str, dict[str, Any]] = {}
    drifts = []
    for line in saved.read_text(encoding="utf-8").splitlines() if saved.is_file() else ():
        entry = json.loads(line)
        found[entry["part"]] = entry
        drifts += [entry] if entry["part"] == drifting.PART.name else []
    if not found:
        tell(f"{docs / 'benchmarks'} has no figures: run make bench-dppick")
        return 1
    parts = [_INTRODUCTION, "## Targets of the operator\n", *paragraphs(targets(found)), _EXPLAINED]
    for heading, module in PARTS.items():
        entry = found.get(module.PART.name)
        if entry is not None:
            charts = module.charts(entry) if hasattr(module, "charts") else {}
            part = replace(module.PART, tables=partial(_titled, module.PART.tables))
            parts += section(docs, f"{heading} (one operator)", part, entry, charts)
    if len(drifts) > 1:
        parts += [
            "## All lines of drifting streams (one operator)\n",
            drifting.history(drifts).markdown(),
        ]
    (docs / "benchmarks-dppick.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def _titled(tables: Callable[[dict[str, Any]], list[Grid]], entry: dict[str, Any]) -> list[Grid]:
    """Return the benchmark's tables, with a note in their titles that no pipeline was measured."""
    return [replace(grid, title=f"one operator: {grid.title}") for grid in tables(entry)]

"""``docs/benchmarks-dppick.md`` from saved figures: ``python -m benchmarks.dppick --report``.

Reads ``docs/benchmarks/dppick.jsonl``, one line per run of one benchmark, and shows the newest of
each. Equal lines give equal bytes.
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

No figure of this page is of the pipeline. All of them are of one multi-way join operator that only
benchmarks have, in one process without Spark. In a pipeline the joint plan has the probe orders;
it is replaced at an epoch or by a revision, not by this search.

Made by `make bench-dppick` (`python -m benchmarks.dppick --report`) from the lines in
[`benchmarks/dppick.jsonl`](benchmarks/dppick.jsonl), the newest of each benchmark. Change the
benchmarks, not this file.

The operator (`benchmarks.umjoin`, state in memory) has its probe orders chosen while it runs: by
dpPick, its rivals and the exact search over visited sets (`benchmarks.papers.dppick`), on forecasts
of the counts (`anabranch_planner.forecast`). The cost is probes plus matches. A period is a number
of batches, so that counts and orders repeat. Run times are CPU seconds of the one process, since
others worked on the same machine; they include statistics and decisions. Every run's number of
results is compared with DuckDB's; a run with another reports nothing. The figures of a table were
measured in one run, in turns, so compare within tables.
"""
_EXPLAINED = """\
Where one is missed:

- *Run time over TPC-DS.* The paper's savings are out of reach here: the table below has what the
  best permutation saves of the mean of all, by arithmetic and as measured. Inserts, the log and
  the results take the same time in every order, so less of the run time is saved than of probes
  and matches. Without statistics and decisions dpPick's run time is about what hindsight's order
  takes. Fixed is faster where its first orders are near the best: there statistics are all that
  is added.
- *Statistics and decisions.* A decision takes about as long whatever the period, nearly all of it
  for forecasts. At full speed the whole of TPC-DS lasts a second, so a period is a small part of
  one, and decisions weigh thirty times what they do in a pipeline. Counting (which probes found
  something, which keys are new) goes with the tuples and is the larger part of the rest.
- *Greedy.* Where keys are independent and every input can be probed next (clique, star), the
  cheapest next step begins a cheapest order: a search can save nothing but what greedy's
  estimates miss. Only a path has cheap steps that hide dear ones, and only its two inner inputs
  have a choice. Where dpPick does more than greedy, figures of steps that hardly ran are to
  blame: the search takes the order whose estimates err low. Figures that are some periods old, if
  preferred to neighbours' figures, made this much worse: so they come last
  (`benchmarks.dppick.measures`).
- *Swaps and bursts, against no-smooth.* Forecasts clean outliers, and an abrupt change looks like
  one until a second period confirms it. That costs a period after every swap and most of a burst;
  the last value alone follows at once. What no-smooth lacks, a trend, matters little: rows stored
  are known, not forecast, so the growth of stores is in both.
- *Selectivity.* It divides by the rows stored, which misleads where inputs are of unequal size
  (TPC-DS: partners are as the rows, so nothing is left to rank by). In the generated streams
  fan-outs differ more than sizes do, and it is close to greedy.
- *Run time of drifting streams.* Batches are small, so what a batch takes anyway is most of the
  time, and decisions come every few hundredths of a second. Each was timed once on a machine with
  several times more work than cores: dpPick and the exact search nearly always take the same
  orders, and how far their run times differ is the noise of all ratios in that table (up to a
  third). Probes and matches repeat exactly; on run time these figures decide nothing. Once more
  with the held-out seed 11 on a machine without other work, three graphs, constant and swap: of
  fixed's probes and matches 0.76 and 0.63, of hindsight's 1.00 and 0.77, of greedy's 1.00 and 0.98;
  of fixed's run time without statistics and decisions 0.85 and 0.90, of hindsight's 1.16 and 1.25.
  These take a third of dpPick's run time (40 decisions of 5 ms in a run of half a second to one and
  a half), so with them it is 1.33 and 1.40 of fixed's. A pipeline decides every three seconds.
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
    """Tables whose titles say that they are not of the pipeline."""
    return [replace(grid, title=f"one operator: {grid.title}") for grid in tables(entry)]

"""``docs/benchmarks-pmjoin.md`` from saved figures.

``python -m benchmarks.pmjoin.report [--docs docs]`` reads ``docs/benchmarks/pmjoin.jsonl``, one
line per run of one benchmark, and shows the newest of each. Equal lines give equal bytes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.pmjoin import hot_keys, looking_ahead, simulation, skew
from benchmarks.report.figures import ROOT, newest, tell
from benchmarks.report.grids import Grid
from benchmarks.report.sections import section

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTRODUCTION = """\
# Benchmarks of placement and of skew

Made by `python -m benchmarks.pmjoin.report` from the lines in
[`benchmarks/pmjoin.jsonl`](benchmarks/pmjoin.jsonl), the newest of each benchmark. Change the
benchmarks, not this file. What the algorithms are is in [placement.md](placement.md) and
[planner.md](planner.md#substreams).
"""

_SKEW = """\
With every value of its own order, work would be 0.46 of that by one order in the workload
*different* of exponent 1.2, and 0.59 if the 64 most frequent values of each stream had one (worked
out from the distributions, for 150,000 rows of each stream): what is left is in values that are not
among them, in statistics that lag, and in plans that keep intermediate results. Plans are made by
the objective *default*, which counts tuples and charges nothing for calls: each kind adds some, of
0.3 to 0.4 ms a batch, which does not pay where there are few results. So the service tells nothing
apart unless it is asked to.
"""

_AHEAD = """\
Targets are those of sides without intermediate results (MIRs), but for TPC-H. Little of a batch's
time is probing here, and storing is the same on both sides, so time falls by less than work. With
intermediate results hardly anything may be asked: their stores need what would be dropped. The
planner prefers them here, although plans without them are faster, even more so where they ask: it
counts tuples, and does not compare plans by what could be asked.
"""


_HOT = """\
Hosts are threads of one process here, so that what each of them does can be counted and not timed:
two cores would not show that three hosts are faster. All hosts together probe more often, as each
probe of a hot value goes to all of them. Matches are counted before time bounds are checked, so
some depend on how long a segment is kept; results are the same. *Bytes* grow by those probes.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description="docs/benchmarks-pmjoin.md from saved figures")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the report")
    docs = parser.parse_args(arguments).docs
    found = newest(docs, "pmjoin")
    part = simulation.BENCHMARK
    if part.name not in found:
        tell(f"{docs / 'benchmarks'} has no figures of placement")
        return 1
    ahead = found.get(looking_ahead.BENCHMARK.name)
    apart = found.get(skew.BENCHMARK.name)
    hot = found.get(hot_keys.BENCHMARK.name)
    rows = targets(found[part.name])
    rows += () if apart is None else targets_apart(apart)
    rows += () if ahead is None else targets_ahead(ahead)
    rows += () if hot is None else targets_hot(hot)
    grid = Grid("targets", ("target", "wanted", "found", "held"), rows)
    parts = [_INTRODUCTION, "## Targets\n", grid.markdown()]
    parts += section(docs, "Simulation", part, found[part.name], {})
    if apart is not None:
        parts += section(docs, "Orders per kind of value", skew.BENCHMARK, apart, {}, [_SKEW])
    if ahead is not None:
        parts += section(docs, "Looking ahead", looking_ahead.BENCHMARK, ahead, {}, [_AHEAD])
    if hot is not None:
        parts += section(docs, "Hot keys", hot_keys.BENCHMARK, hot, {}, [_HOT])
    (docs / "benchmarks-pmjoin.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def targets(entry: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    """What was wanted, what was found, and whether that holds."""
    figures = entry["figures"]
    compared = [row for figure in ("5", "6", "7") for row in figures[figure]]
    ratio = statistics.fmean(row["ratio"] for row in compared)
    seconds = {row["streams"]: row["exact_seconds"] for row in figures["6"]}
    rows = [
        _row("StreamJoinOpt, of the optimum, mean", "≤ 1.05 ×", ratio, 1.05, " ×"),
        _row("exact, ten streams", "≤ 1 s", seconds[10], 1.0, " s"),
        _row("exact, 14 streams", "≤ 10 s", seconds[14], 10.0, " s"),
    ]
    different = [row for row in figures["8"] if row["kind"].startswith("different")]
    alone = {row["kind"]: row["plan"] for row in different if row["groups"] == 1}
    for groups, most in ((2, 0.5), (1000, 0.1)):
        left = statistics.fmean(
            row["plan"] / alone[row["kind"]] for row in different if row["groups"] == groups
        )
        name = f"different distributions, {groups} groups, of one plan"
        rows.append(_row(name, f"≤ {most:g} ×", left, most, " ×"))
    ways = [name for name in figures["8"][0] if name not in ("kind", "groups", "plan")]
    worst = max(row["plan"] / min(row[way] for way in ways) for row in figures["8"])
    rows.append(_row("chosen groups, of the best others", "≤ 1 ×", worst, 1.0005, " ×"))
    return tuple(rows)


def targets_apart(entry: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The same of substreams: four kinds at most, eight for batches with little in them."""
    found = {
        (row["heavy"], row["exponent"], row["most"]): row
        for row in sorted(entry["rows"], key=lambda row: row["rows"])
    }
    heavy, equal = found["different", 1.2, 4], found["equal", 0.3, 4]
    many = found["different", 1.2, 8]
    return (
        _row("kinds of values, Zipf 1.2, work", "≤ 0.5 ×", heavy["work"], 0.5, " ×"),
        _row("the same, time", "≤ 0.67 ×", heavy["time"]["median"], 0.67, " ×"),
        _row("equal distributions, time", "≤ 1.01 ×", equal["time"]["median"], 1.01, " ×"),
        _row("eight kinds, empty batch", "≤ 1.1 ×", many["empty"]["median"], 1.1, " ×"),
        _row("four kinds, planning", "≤ 2 ×", heavy["planning"]["median"], 2.0, " ×"),
    )


def targets_ahead(entry: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The same of looking ahead."""
    rows = []
    for workload, sides in ((one["workload"], one["sides"]) for one in entry["workloads"]):
        kind = ", with MIRs" if workload == "TPC-H" else ""
        on, off = (sides[f"{side}{kind}"] for side in ("on", "off"))
        time = on["seconds"]["median"] / off["seconds"]["median"]
        if kind:
            rows.append(_row(f"looking ahead, {workload}, time", "≤ 1.01 ×", time, 1.01, " ×"))
            continue
        work = [side["probes"]["median"] + side["matches"]["median"] for side in (on, off)]
        found = work[0] / work[1]
        rows.append(_row(f"looking ahead, {workload}, work", "≤ 0.5 ×", found, 0.5, " ×"))
        rows.append(_row(f"looking ahead, {workload}, time", "≤ 0.67 ×", time, 0.67, " ×"))
    return tuple(rows)


def targets_hot(entry: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The same of hot keys: the worst of all seeds, by the greatest exponent that was measured."""
    greatest = max(run["exponent"] for run in entry["runs"])
    runs = [run for run in entry["runs"] if run["exponent"] == greatest]
    rows = []
    for shape in hot_keys.SHAPES:
        worst = max(run["on"]["busiest"] for run in runs if run["workload"] == shape)
        name = f"hot keys, Zipf {greatest:g}, {shape}, busiest host of three, of the mean"
        rows.append(_row(name, "≤ 1.3 ×", worst, 1.3, " ×"))
    moved = float(max(run["on"]["moved"] for run in entry["runs"]))
    rows.append(_row("the same, partitions moved", "0", moved, 0.0, ""))
    return tuple(rows)


def _row(name: str, wanted: str, found: float, most: float, unit: str) -> tuple[str, ...]:
    return name, wanted, f"{found:.3g}{unit}", "yes" if found <= most else "no"


if __name__ == "__main__":
    sys.exit(main())

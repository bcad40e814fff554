"""Writes ``docs/benchmarks-pmjoin.md`` from saved figures.

``python -m benchmarks.pmjoin.report [--docs docs]`` reads ``docs/benchmarks/pmjoin.jsonl``, one
line per run of one benchmark, and shows the newest line of each benchmark. Equal lines give an
equal page, byte for byte.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.command import Benchmark
from benchmarks.pmjoin import (
    defaults,
    hot_keys,
    looking_ahead,
    partial,
    readings,
    simulation,
    sites,
    skew,
)
from benchmarks.pmjoin.several_keys import SELECTIONS
from benchmarks.report.charts import Line, Row, grouped, lines
from benchmarks.report.figures import docs_folder, newest, tell
from benchmarks.report.sections import section
from benchmarks.report.targets import Figure, Target, grid, paragraphs

_INTRODUCTION = """\
# Benchmarks of placement and of skew

Made by `python -m benchmarks.pmjoin.report` from the lines in
[`benchmarks/pmjoin.jsonl`](benchmarks/pmjoin.jsonl), the newest of each benchmark. Change the
benchmarks, not this file. The algorithms are described in
[pmjoin](../benchmarks/papers/pmjoin/README.md) and [planner.md](planner.md#substreams).
"""

_WAYS = ("hash", "range", "rate", "plan")

_SKEW = """\
Substreams (*kinds* in the tables) are chosen by CPU seconds, and each further one adds fixed costs
of 0.3 to 0.4 ms a batch. So small batches have few substreams, and a maximum above four changes
nothing. *Each value* is computed in hindsight, batch by batch, over the stores of the streams: it
is unknown when an epoch is planned, and plans with intermediate results (MIRs) may do less work.

Other processes used the two cores, too, so the times of equal plans differ, as their ranges show.
Only differences well beyond these ranges are significant.
"""

_DEFAULTS = """\
If no value is frequent enough for a probe order of its own, the rules with up to four substreams
(*kinds* in the table) equal those with one, and times differ only by the noise of this machine. The
only cost is then that of planning.

On one host several partitions only cost time: each step is executed once per partition. Two tasks
in one process may exaggerate this compared with two processes, but a task can probe all of a store
either way. So one partition is the right number there, and the default of `anabranch up`.
"""

_AHEAD = """\
Targets are for plans without intermediate results (MIRs), except for TPC-H. Little of a batch's
time is probing here, and storing is the same with and without filters, so time falls by less than
work.
With intermediate results hardly any filter may be used, because their stores need the tuples that
it would drop. The planner preferred them here, although plans without them are faster, even more so
with filters: it charged a stored row as one probe and merges not at all, and does not take filters
into account when it compares plans.
"""


_HOT = """\
Hosts are threads of one process here, so their work is counted, not timed: on two cores three hosts
could not be faster. The total number of probes grows, as each probe of a hot value goes to all
hosts, and *bytes* with it. Matches are counted before time bounds are checked, so some depend on
how long a segment is kept; results are the same.
"""


_SITES = """\
Values are assigned to partitions by hash. The fewer partitions there are, the more of them have
frequent values of several streams; each is placed at the site with most of its tuples. No host may
exceed its share of the load by more than a quarter. If hot values are spread, their rows are on
several hosts wherever they arrive, which costs part of the traffic that placement saves.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    docs = docs_folder("pmjoin", arguments)
    found = newest(docs, "pmjoin")
    part = simulation.BENCHMARK
    if part.name not in found:
        tell(f"{docs / 'benchmarks'} has no figures of placement")
        return 1
    entry = found[part.name]
    there = [one for one in _measured() if one.benchmark.name in found]
    wanted = targets(entry)
    for one in there:
        wanted += one.targets(found[one.benchmark.name])
    parts = [_INTRODUCTION, "## Targets\n", *paragraphs(grid(wanted))]
    notes = [
        note(entry)
        for note in (note_on_optimum, note_on_groups, note_on_routing, note_on_selections)
    ]
    parts += section(docs, "Simulation", part, entry, charts(entry), notes)
    for one in there:
        entry = found[one.benchmark.name]
        parts += section(docs, one.title, one.benchmark, entry, {}, [n(entry) for n in one.notes])
    (docs / "benchmarks-pmjoin.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


class _Part(NamedTuple):
    """A benchmark of the runtime: its section of the page, and its targets."""

    title: str
    benchmark: Benchmark
    targets: Callable[[dict[str, Any]], tuple[Target, ...]]
    notes: tuple[Callable[[dict[str, Any]], str], ...] = ()


def _said(text: str) -> Callable[[dict[str, Any]], str]:
    """Return a note that does not depend on figures."""
    return lambda _: text


def _measured() -> tuple[_Part, ...]:
    return (
        _Part(
            "Orders per substream",
            skew.BENCHMARK,
            targets_apart,
            (_said(_SKEW), note_on_prices),
        ),
        _Part(
            "Substreams and partitions",
            defaults.BENCHMARK,
            targets_defaults,
            (_said(_DEFAULTS),),
        ),
        _Part("Excluded values", partial.BENCHMARK, targets_kept),
        _Part("Looking ahead", looking_ahead.BENCHMARK, targets_ahead, (_said(_AHEAD),)),
        _Part("Hot keys", hot_keys.BENCHMARK, targets_hot, (_said(_HOT),)),
        _Part("Sites", sites.BENCHMARK, targets_placed, (_said(_SITES),)),
    )


def note_on_groups(entry: dict[str, Any]) -> str:
    """Return a note on why groups save less than in the paper's Fig. 8."""
    found = {
        row["reading"]: row
        for row in entry["figures"]["readings"]
        if row["hot_spots"] == "contiguous"
    }
    ours, narrow = found[readings.BASE], found[readings.NARROW]
    together = found[readings.TOGETHER]
    return (
        "*Why groups of values save less than in the paper's Fig. 8, for different distributions.*"
        " With 1,000 equally frequent values, a stream has some 28 tuples of each in its window"
        " (505 tuples per second for 55 s). So a join of two streams has more tuples than either,"
        " and the best plan for a value sends all of its tuples to the stream with most of them. A"
        f" plan for each value sends {_percent(ours['each_×'])} of one plan's tuples with"
        f" StreamJoinOpt (contiguous hot spots), and {_percent(ours['each_exactly_×'])} with the"
        " optimum of each value, the lower bound for any groups. A value costs next to nothing only"
        " if some stream has less than one tuple of it in its window. The number of such rare"
        " values depends on how narrow the normal distributions are, which the paper does not say:"
        " with deviations from a thousandth to half of all values, drawn by their logarithm,"
        f" {_percent(narrow['each_×'])} of the tuples are sent; if, in addition, rates form a"
        f" geometric series and all parameters are equally likely, {_percent(together['each_×'])},"
        f" and {_percent(together['two_×'])} with two groups by rate. The last table has each of"
        " these changes alone. Draws differ much, so each figure depends on its draws. So most of"
        " the difference is due to details that the paper leaves open, and the rest to"
        " StreamJoinOpt. Targets are measured with details chosen before this was known, with one"
        " exception: contiguous hot spots have a random place for each stream, while the paper has"
        " the mean of a normal distribution in the middle and the frequent values of other"
        " distributions at one end. More groups may also send more tuples than fewer, as plans"
        " come from a heuristic."
    )


def note_on_prices(entry: dict[str, Any]) -> str:
    """Return a note on why work and time fall by less than orders per substream would permit."""
    skewed = [
        row
        for row in entry["rows"]
        if row["heavy"] in ("different", "chain")
        and row["exponent"] == 1.2
        and row["size"] >= 100_000
    ]
    cpu = {
        (row["heavy"], row["size"], row["values"], row["most"], row["mir"]): row["cpu"]["median"]
        for row in skewed
    }
    excess = {
        most: sorted(cpu[*name, most, True] / cpu[*name, most, False] for name in _names(cpu, most))
        for most in (1, 4)
    }
    chain = [row for row in skewed if row["heavy"] == "chain" and row["size"] > 100_000]
    dearer = [row["work"] for row in chain if row["most"] == 1 and not row["mir"]]
    work = f" ({min(dearer):.2f} times the work in the chain of a million tuples)" if dearer else ""
    return (
        "*Why targets are missed.* The chosen plan keeps MIRs. If the streams have different"
        " frequent values (Zipf 1.2, 100,000 tuples a batch and more), it mostly takes more CPU"
        f" time than the plan without MIRs: {excess[1][0]:.2f} to {excess[1][-1]:.2f} times as much"
        f" with one order for all tuples, {excess[4][0]:.2f} to {excess[4][-1]:.2f} times with four"
        " substreams. It was chosen for two reasons. A stored row was charged as much as one"
        " probe, and merging, which rewrites it, not at all, although a stored row costs as much"
        " as several probes ([measured](benchmarks-ranking.md#constants)). And the sizes of"
        " sub-joins that no plan has run are estimated far too large under skew, so plans not run"
        f" before, such as the one without MIRs{work}, seemed to cost more than they do. Merging"
        " has been part of prices since; these figures are older."
    )


def _names(cpu: dict[tuple[Any, ...], float], most: int) -> list[tuple[Any, ...]]:
    """Return names of workloads measured with and without MIRs, by number of substreams."""
    return [key[:3] for key in cpu if key[3:] == (most, True) and (*key[:3], most, False) in cpu]


def note_on_optimum(entry: dict[str, Any]) -> str:
    """Return a note on ratios of StreamJoinOpt's cost to the optimum that their mean conceals."""
    figures = entry["figures"]
    worst = max(figures["6"], key=lambda row: row["ratio"])
    return (
        "*StreamJoinOpt and the optimum.* The target is a mean over Fig. 5 to 7, most of whose"
        " rows leave no choice: there the heuristic is close to the optimum. It is further away"
        f" with many streams, {worst['ratio']:.2f} times the optimum for {worst['streams']} streams"
        " in Fig. 6 (the paper finds it very close). The mean depends on few draws: a first run"
        " with one draw had 1.08 and missed the target, so three are taken now."
    )


def note_on_routing(entry: dict[str, Any]) -> str:
    """Return a note on the paper's Fig. 9, compared with our figures."""
    rows = [row for row in entry["figures"]["9"] if row["kind"].startswith("different")]
    least, most = (pick(row["groups"] for row in rows) for pick in (min, max))
    sent, spent = (
        statistics.fmean(row[f"plan_{figure}"] for row in rows if row["groups"] == most)
        / statistics.fmean(row[f"plan_{figure}"] for row in rows if row["groups"] == least)
        for figure in ("sent", "ms")
    )
    return (
        "*Routing.* The paper finds that routing by groups mostly takes less CPU time than by one"
        f" plan, as fewer tuples are sent. Here {most:,} groups by plan (different distributions)"
        f" send {sent:.2f} times as many tuples, and routing takes {spent:.2f} times as long: for"
        " each arriving tuple first its group and then its route is looked up, whether it is sent"
        " or not. Saved CPU time of the network is not counted."
    )


def note_on_selections(entry: dict[str, Any]) -> str:
    """Return a note on the paper's Fig. 11, compared with our figures."""
    rows = entry["figures"]["11"]
    # Queries without PMJoins have the ratio 1, and are left out.
    some = [row for row in rows if row["with_PMJoins"]] or rows
    left = {name: statistics.fmean(row[f"{name}_×"] for row in some) for name in SELECTIONS}
    shares = ", ".join(f"{name} {100 * ratio:.1f} %" for name, ratio in left.items())
    few = [f"{row['values']:,}" for row in rows if row["with_PMJoins"] < row["queries"] / 2]
    return (
        "*Several keys.* PMJoins send, as shares of one plan's tuples and on the mean of all"
        f" numbers of values at which a query has PMJoins: {shares}. With few values"
        f" ({' or '.join(few) or 'none here'}) joins have more results than inputs, so plans send"
        " everything to one join by all keys: hardly any query has a PMJoin. With many values"
        " plans have joins by one key, but these send little: groups save less than in queries"
        " with one key only. The paper leaves open how its queries are drawn, and the number and"
        " definition of the groups."
    )


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"


def charts(entry: dict[str, Any]) -> dict[str, str]:
    """Return chart name -> SVG: the paper's Fig. 8 and 9 by kind of distribution, and Fig. 11."""
    figures, found = entry["figures"], {}
    kinds = list(dict.fromkeys(row["kind"] for row in figures["8"]))
    for letter, kind in zip("abcd", kinds, strict=True):
        rows = {name: [row for row in figures[name] if row["kind"] == kind] for name in ("8", "9")}
        sent = [Line(way, _points(rows["8"], "groups", way)) for way in _WAYS]
        routing = [Line(way, _points(rows["9"], "groups", f"{way}_ms")) for way in _WAYS]
        across = "groups (log10)"
        found[f"pmjoin-figure8{letter}"] = lines(kind, across, "tuples sent a second", sent)
        found[f"pmjoin-figure9{letter}"] = lines(kind, across, "ms of routing a second", routing)
    found["pmjoin-figure11"] = grouped(
        "several keys: % of what one plan sends, means over queries with PMJoins",
        SELECTIONS,
        [
            Row(f"{row['values']:,} values", tuple(100 * row[f"{name}_×"] for name in SELECTIONS))
            for row in figures["11"]
            if row["with_PMJoins"]
        ],
    )
    return found


def _points(
    rows: Sequence[dict[str, Any]], across: str, name: str
) -> tuple[tuple[float, float], ...]:
    return tuple((round(math.log10(row[across]), 2), row[name]) for row in rows)


def targets(entry: dict[str, Any]) -> tuple[Target, ...]:
    """Return the targets of the simulation: means over random draws, and seconds."""
    figures = entry["figures"]
    compared = [row["ratio"] for figure in ("5", "6", "7") for row in figures[figure]]
    seconds = {row["streams"]: row["exact_seconds"] for row in figures["6"]}
    rows = [
        _at_most("StreamJoinOpt, of the optimum, mean", Figure.mean(compared), 1.05),
        _at_most("exact, ten streams", Figure.once(seconds[10]), 1.0, " s"),
        _at_most("exact, 14 streams", Figure.once(seconds[14]), 10.0, " s"),
    ]
    different = [row for row in figures["8"] if row["kind"].startswith("different")]
    alone = {row["kind"]: row["plan"] for row in different if row["groups"] == 1}
    for groups, most in ((2, 0.5), (1000, 0.1)):
        left = [row["plan"] / alone[row["kind"]] for row in different if row["groups"] == groups]
        name = f"different distributions, {groups} groups, of one plan, mean"
        rows.append(_at_most(name, Figure.mean(left), most))
    ways = [name for name in figures["8"][0] if name not in ("kind", "groups", "plan")]
    # Tuples per second are saved with three decimal digits.
    worst = max(row["plan"] / min(row[way] for way in ways) for row in figures["8"])
    name = "chosen groups, of the best others, worst"
    rows.append(_at_most(name, Figure.counted(round(worst, 3)), 1.0))
    return tuple(rows)


def targets_apart(entry: dict[str, Any]) -> tuple[Target, ...]:
    """Return the targets of substreams: for at most four kinds, workloads whose large batches have
    few results (*different* and the chain); for eight, batches with little work.
    """
    rows, rounds = [row for row in entry["rows"] if row["mir"]], entry["settings"]["rounds"]
    targets = []
    for row in rows:
        few = row["heavy"] in ("different", "chain") and row["exponent"] == 1.2
        if row["most"] != 4 or not few or row["size"] < 100_000:
            continue
        name = f"four kinds, {row['heavy']}, {row['size']:,} tuples, {row['values']:,} values"
        targets.append(_at_most(f"{name}, work", Figure.counted(row["work"]), 0.5))
        time = Figure.of(row["seconds"], rounds)
        targets.append(_at_most(f"{name}, time", time, 0.67))
        if "each" in row:
            own = Figure.counted(row["work"] / row["each"])
            targets.append(_at_most(f"{name}, work, of own orders", own, 1.1))
    found = {(row["heavy"], row["exponent"], row["size"], row["most"]): row for row in rows}
    heavy, equal = (found[name, z, 100_000, 4] for name, z in (("different", 1.2), ("equal", 0.3)))
    many = found["different", 1.2, 100_000, 8]
    times = (
        ("equal distributions, time", equal["seconds"], 1.01),
        ("eight kinds, empty batch", many["empty"], 1.1),
        ("four kinds, planning", heavy["planning"], 2.0),
    )
    return (
        *targets,
        *(_at_most(name, Figure.of(ratio, rounds), most) for name, ratio, most in times),
    )


def targets_defaults(entry: dict[str, Any]) -> tuple[Target, ...]:
    """Return the targets of four substreams for workloads in which little saving is expected."""
    found = {
        row["workload"]: row
        for row in entry["rows"]
        if (row["most"], row["partitions"], row["tasks"]) == (4, 1, 1)
    }
    return tuple(
        _at_most(
            f"four kinds, {name}, {figure}",
            Figure.of(found[name][key], entry["settings"]["rounds"]),
            1.01,
        )
        for name in ("TPC-H", "TPC-DS")
        if name in found
        for figure, key in (("time", "seconds"), ("CPU", "cpu"))
    )


def targets_kept(entry: dict[str, Any]) -> tuple[Target, ...]:
    """Return the targets of partial intermediate results: the worst case over all sizes."""
    found = {(row["rows"], row["side"]): row for row in entry["rows"]}
    sizes = sorted({rows for rows, _ in found})

    def ratio(name: str) -> Figure:
        worst = max(float(found[n, "partial"][name] / found[n, "whole"][name]) for n in sizes)
        return Figure.counted(worst)

    return (
        _at_most("partial intermediate results, rows", ratio("stored"), 0.5),
        _at_most("the same, work", ratio("work"), 1.1),
    )


def targets_ahead(entry: dict[str, Any]) -> tuple[Target, ...]:
    """Return the targets of look-ahead filters."""
    rows, rounds = [], entry["settings"]["rounds"]
    for workload, sides in ((one["workload"], one["sides"]) for one in entry["workloads"]):
        kind = ", with MIRs" if workload == "TPC-H" else ""
        on, off = (sides[f"{side}{kind}"] for side in ("on", "off"))
        after, before = (Figure.of(side["seconds"], rounds) for side in (on, off))
        time = after.over(before)
        if kind:
            rows.append(_at_most(f"looking ahead, {workload}, time", time, 1.01))
            continue
        work = [side["probes"]["median"] + side["matches"]["median"] for side in (on, off)]
        found = Figure.counted(work[0] / work[1])
        rows.append(_at_most(f"looking ahead, {workload}, work", found, 0.5))
        rows.append(_at_most(f"looking ahead, {workload}, time", time, 0.67))
    return tuple(rows)


def targets_hot(entry: dict[str, Any]) -> tuple[Target, ...]:
    """Return the targets of hot keys: the worst seed, for the greatest measured exponent."""
    greatest = max(run["exponent"] for run in entry["runs"])
    runs = [run for run in entry["runs"] if run["exponent"] == greatest]
    rows = []
    for shape in hot_keys.SHAPES:
        busiest = [run["on"]["busiest"] for run in runs if run["workload"] == shape]
        name = f"hot keys, Zipf {greatest:g}, {shape}, busiest host of three, of the mean, worst"
        rows.append(_at_most(name, _worst(busiest), 1.3))
    moved = float(max(run["on"]["moved"] for run in entry["runs"]))
    rows.append(_at_most("the same, partitions moved", Figure.counted(moved), 0.0, ""))
    return tuple(rows)


def targets_placed(entry: dict[str, Any]) -> tuple[Target, ...]:
    """Return the targets of streams with sites: the worst seed, for the greatest exponent."""
    runs = [run for run in entry["runs"] if run["values"] == "different" and not run["hot"]]
    greatest = max(run["exponent"] for run in runs)
    ratios: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        if run["exponent"] == greatest:
            known = ratios.setdefault((run["workload"], run["partitions"]), [])
            known.append(run["placed"]["sent"] / run["hashed"]["sent"])
    return tuple(
        _at_most(
            f"streams at sites, {shape}, {partitions} partitions, bytes between hosts, worst",
            _worst(found),
            0.6,
        )
        for (shape, partitions), found in ratios.items()
    )


def _worst(counts: Sequence[float]) -> Figure:
    """Return the greatest of counts over seeds; each of them repeats exactly."""
    return Figure(max(counts), min(counts), max(counts), len(counts), (max(counts), max(counts)))


def _at_most(name: str, found: Figure, most: float, unit: str = " ×") -> Target:
    return Target(name, found, most, False, 3, unit)


if __name__ == "__main__":
    sys.exit(main())

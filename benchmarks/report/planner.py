"""Section on planning of ``docs/benchmarks.md``: the newest line of every part of the benchmark.

A part that was measured with several parallelisms in separate runs is shown for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.planner.tables import figures_of, verdicts
from benchmarks.report.charts import Line, lines
from benchmarks.report.provenance import provenance
from benchmarks.report.targets import paragraphs

_PLANNING = """\
## Planning

Made by `python -m benchmarks.planner`; every part below is one run of it.

*Problems* are drawn at random, `100×10×4` meaning 10 queries of 4 relations each over a pool of 100
relations (`natural` of `benchmarks/papers/clash/environment.py`). N relations have
three distinct attributes each, drawn uniformly from N names. A query begins at a random relation
and repeatedly adds one drawn uniformly from the relations that have an attribute in common with one
of its own; relations are joined on all attributes that they have in common. A set of relations that
was drawn before is left out. Every relation has the rate 100, and 100 distinct values of every
attribute and of every combination of attributes, so a join of two relations has the selectivity
1/100. Windows cover the full history. MIRs (intermediate results) may be kept.

*Objectives*: `tuples` charges probes and the inserts into every copy of a store, `paper` probes
only. *Parallelism* is the number of partitions per store. At 1 no probe is sent to several
partitions; above 1 the partition attribute of every copy is chosen too, which is a harder problem.

*Time* is everything from parsed queries to the compiled and validated ruleset, in a process that
has loaded the solver and made a small plan before. *CPU* is the CPU time of that process and its
children: with one thread, the time on an idle machine. *Proven* plans have a gap of at most 10⁻⁶
between cost and bound. Searches without a proof were stopped at the time limit, so their times are
lower bounds. *Peak memory* is that of a process which plans one size of problems for all seeds.
Every plan is validated, outside the measured time. Figures are medians over seeds with their range
in brackets.
"""
_TARGETS = """\
### Targets
"""
_NOTES = {
    "targets": """\
### Time to the proven optimum, certified gaps, savings

`build` makes the graph of candidate stores and steps, `search` finds a first plan, `reduce` drops
stores that can't reduce the cost of any plan, `solve` is all work on linear and integer programs,
`assemble` turns the solution into a plan.
""",
    "incremental": """\
### One query more

A session plans a thousand queries, then gets one more. This one is planned together with the
queries that can share most with it; the others keep their orders. *Improving* is a later full
search, in the background of an epoch. The ruleset of all queries is compiled from scratch.
""",
    "figure9": """\
### The paper's simulation (section VII-C, Fig. 9)

Queries over 10 and over 100 relations with three attributes each, equal rates, selectivity 1/rate,
exact duplicates left out, probes only, not partitioned (in the paper's program copies are free, so
partitioning costs nothing). The paper does not say how attributes and queries are drawn; here it is
the environment `{environment}`. *Printed* is the paper's program as corrected in `docs/planner.md`,
solved by HiGHS; *decorated* counts its orders with partition attributes, as the paper does.
""",
    "rivals": """\
### Printed and tight formulation

The formulation printed in the paper and the tight one solve the same problems in turns, by HiGHS,
with one thread; times include the graph of candidates, which both need, but not the ruleset. *Times
faster* is a median over the problems that the tight formulation proved; a problem that the printed
one did not prove within the limit counts with the limit (marked ≥). The number of problems with a
ratio is given unless all have one. *By CPU* is the same ratio of CPU seconds.
""",
    "solvers": """\
### Solvers

The tight program, objective tuples, by every solver; time without the ruleset, on one thread and
on two. `branch` is our own branch and bound over HiGHS's linear relaxations. CP-SAT, MathOpt and
CBC run in a process of their own, which is started for every plan; the last column is the time for
a plan of three queries, nearly all of it for this start.
""",
    "tpch": """\
### The demo's queries

Five joins of four relations each over TPC-H, under exact statistics of data at scale {scale:g}.
*Individual* plans every query alone; *shared* executes equal steps of these plans once; *clash*
chooses plans jointly.
""",
    "mixed": """\
### Random queries over TPC-H

The CLASH paper builds its queries from foreign keys and from type-compatible columns that have
values in common, beginning with a random relation and adding random joins (section VII-A). Here are
sets of such queries over four tables each, joined by pairs of columns with common values at scale
{scale:g} ({pairs} pairs, nine of them foreign keys). The paper does not say how often it takes
foreign keys and other columns, so three mixtures are drawn. Plans are priced with exact numbers of
rows and selectivities, not partitioned; ratios are medians over sets with their range.
""",
}
#: Published figures of the CLASH paper, for comparison.
_PUBLISHED = (
    "The paper's own figures (Gurobi, 3.1 GHz Core i7): about 50 % saved over 10 relations, about "
    "15 % at 50 queries over 100; 1,717 variables for 100 queries over 10 relations, about 3,000 "
    "for 50 over 100; 0.12 s for 100 queries of three, 0.4 s for ten of four, 12 s for ten of "
    "five, over 120 s for 30 of five.\n"
)
#: Published: number of relations -> numbers of variables, by number of queries.
_PUBLISHED_VARIABLES = {
    10: (Line("variables, published", ((100.0, 1717.0),), joined=False),),
    100: (Line("variables, published", ((50.0, 3000.0),), joined=False),),
}
_PUBLISHED_BY_COUNT = ((100.0, 0.12),)
#: Published: (relations per query, seconds); the last one is a lower bound.
_PUBLISHED_BY_SIZE = ((4.0, 0.4), (5.0, 12.0), (5.0, 120.0))


def planner_section(entries: Sequence[dict[str, Any]], figures: Path) -> list[str]:
    """Return the section with ``entries``, oldest first; also writes its charts.

    Args:
        figures: folder for the charts.
    """
    newest = {
        (entry["part"], str(entry.get("settings", {}).get("parallelism"))): entry
        for entry in entries
        if "part" in entry
    }
    found = [newest[key] for part in _NOTES for key in sorted(newest) if key[0] == part]
    if not found:
        return []
    parts = [_PLANNING]
    for grid in verdicts(found):
        parts += [_TARGETS, *paragraphs(grid)]
    for entry in found:
        parts += [_NOTES[entry["part"]].format(**entry), provenance(entry)]
        if entry["part"] == "figure9":
            for name, chart in figure9_charts(entry).items():
                (figures / name).write_text(chart, encoding="utf-8")
                parts.append(f"![Fig. 9 {name[7]}](benchmarks/{name})\n")
            parts.append(_PUBLISHED)
        parts += [grid.markdown() for grid in figures_of(entry)]
        parts += [_on_speedup(entry)] if entry["part"] == "mixed" else []
    return parts


def _on_speedup(entry: dict[str, Any]) -> str:
    """Return a note on the paper's 2.6 times the throughput, compared with random queries."""
    fewest = min(group["queries"] for group in entry["groups"])
    some = [group for group in entry["groups"] if group["queries"] == fewest]
    costs = [group["objectives"]["paper"]["joint"] for group in some]
    told = ", ".join(
        f"{one['median']:.2f} by {group['mixture']}" for group, one in zip(some, costs, strict=True)
    )
    most = max(one["high"] for one in costs)
    return (
        f"*The paper's 2.6 times.* With {fewest} queries individual plans cost, by the paper's"
        f" objective, so many times the joint plan's probes: {told} (medians; {most:.2f} at most in"
        f" any of {sum(one['runs'] for one in costs)} sets). Type-compatible joins leave less to"
        " share than foreign keys, since two queries rarely have the same pair of columns. So the"
        " paper's 2.6 times the throughput does not follow from probes saved, whichever of its"
        " joins are drawn. Its independent queries are deployed apart, each with its own input:"
        ' "One pipeline or one for each query" in [benchmarks-runtime.md](benchmarks-runtime.md)'
        " has that comparison.\n"
    )


def figure9_charts(entry: dict[str, Any]) -> dict[str, str]:
    """Return file name -> chart, for the plots (a) to (f)."""
    charts: dict[str, str] = {}
    pools = list(dict.fromkeys(group["relations"] for group in entry["costs"]))
    for number, pool in enumerate(pools):
        groups = [g for g in entry["costs"] if g["relations"] == pool]
        wide = f"queries of three of {pool} relations"
        charts[f"figure9{'ac'[number]}.svg"] = lines(
            f"Probe cost, {wide}",
            "queries drawn",
            "tuples sent per unit of time",
            [
                _line("individual", groups, "individual", "probes"),
                _line("joint", groups, "clash", "probes"),
            ],
        )
        charts[f"figure9{'bd'[number]}.svg"] = lines(
            f"Problem size, {wide}",
            "queries drawn",
            "how many",
            [
                *(
                    Line(
                        f"{what}, {name}",
                        tuple(
                            (float(g["wanted"]), g["printed_sizes"][name][what]["median"])
                            for g in groups
                            if name in g["printed_sizes"]
                        ),
                    )
                    for name in ("plain", "decorated")
                    for what in ("variables", "orders")
                ),
                _line("variables, tight", groups, "clash", "variables"),
                *_PUBLISHED_VARIABLES.get(pool, ()),
            ],
        )
    last = [g for g in entry["costs"] if g["relations"] == pools[-1]]
    charts["figure9e.svg"] = lines(
        f"Run time, queries of three of {pools[-1]} relations",
        "queries drawn",
        "seconds",
        [
            _line("printed, HiGHS", last, "printed", "seconds"),
            _line("tight", last, "clash", "seconds"),
            Line("published, Gurobi", _PUBLISHED_BY_COUNT, joined=False),
        ],
    )
    counts = list(dict.fromkeys(g["wanted"] for g in entry["sizes"]))
    charts["figure9f.svg"] = lines(
        f"Run time by size of queries, of {pools[-1]} relations",
        "relations per query",
        "seconds (logarithmic)",
        [
            *(
                Line(
                    f"{count} queries",
                    tuple(
                        (float(g["size"]), g["seconds"]["median"])
                        for g in entry["sizes"]
                        if g["wanted"] == count
                    ),
                )
                for count in counts
            ),
            Line("published, 10 queries", _PUBLISHED_BY_SIZE[:2], joined=False),
            Line("published, 30 queries: more than", _PUBLISHED_BY_SIZE[2:], joined=False),
        ],
        logarithmic=True,
    )
    return dict(sorted(charts.items()))


def _line(name: str, groups: Iterable[dict[str, Any]], way: str, what: str) -> Line:
    return Line(
        name,
        tuple((float(g["wanted"]), g[way][what]["median"]) for g in groups if what in g[way]),
    )

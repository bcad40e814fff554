"""Search for the memory budget above which the best tree of binary joins is faster than the
multi-way join.

``python -m benchmarks.state.crossover [--json]``

Operators, backend, tuples and the choice of the tree are the same as in ``budgets``; the budgets
here are larger. Without a memory limit both operators run in turns with several batch sizes, since
the batch size changes how often an intermediate result is looked up; ratios compare the CPU
seconds of consecutive runs. In these runs nothing is read from disk, so intermediate results save
no reads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.report.targets import Figure, Verdict
from benchmarks.session import WrongResultError
from benchmarks.state import tpcds
from benchmarks.state.budgets import ranked
from benchmarks.state.command import mebi, run, tpcds_options
from benchmarks.state.worker import AMPLE, PROGRAMS, Outcome, Run, base
from benchmarks.state.worker import run as run_worker
from benchmarks.umjoin.operators.binary_tree import Tree, name_of, tree_of

OPERATORS = ("multi-way", "best tree")
#: Figures of the paper's section 4 in MB: the four tables; the greatest budget at which the
#: multi-way join is faster; the least at which the tree is faster; and the tree's intermediate
#: results.
PAPER_INPUT, PAPER_FASTER, PAPER_SLOWER, PAPER_BETWEEN = 1093, 10 * 1024, 11 * 1024, 5.03 * 1024


def _options(parser: argparse.ArgumentParser) -> None:
    tpcds_options(parser)
    parser.add_argument("--shares", type=float, nargs="*", default=[2.0, 4.0, 8.0])
    parser.add_argument("--batches", type=int, nargs="+", default=[5_000, 20_000, 100_000])
    parser.add_argument("--finalists", type=int, default=3, help="trees to try on all tuples")
    parser.add_argument("--tree", help="instead: the best one, as 'budgets' writes it")
    parser.add_argument("--patience", type=float, default=1200, help="seconds for a run")
    parser.add_argument("--rounds", type=int, default=5, help="without a cap")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    folder = tpcds.data(options.scale, options.cache)
    wanted = tpcds.expected(folder)
    plain = Run(folder, home / "run", batch=options.batch, limit=AMPLE, patience=options.patience)
    if options.tree is None:
        _, finalists = ranked(plain, wanted, options.finalists)
        tree = finalists[0][2]
    else:
        tree = tree_of(options.tree)
    state, between = (
        run_worker(replace(plain, tree=one), wanted).last[what]
        for one, what in ((None, "state"), (tree, "intermediate"))
    )
    bare = base(folder, home, options.batch) if options.shares else 0
    return {
        "results": wanted,
        "data": sum(r.nbytes for b in tpcds.batches(folder, options.batch) for r in b.values()),
        "state": state,
        "best": name_of(tree),
        "intermediate": between,
        "capped": [
            {"share": share, **_capped(plain, tree, wanted, round(share * state), bare)}
            for share in options.shares
        ],
        "ample": [
            {"batch": size, **_in_turns(replace(plain, batch=size), tree, wanted, options.rounds)}
            for size in options.batches
        ],
    }


def _capped(plain: Run, tree: Tree, wanted: int, budget: int, bare: int) -> dict[str, Any]:
    """Run both operators once with ``budget`` bytes, divided as in ``budgets``."""
    one = replace(plain, limit=max(1 << 20, budget // 2), cap=bare + budget + PROGRAMS)
    found = {name: (done.ended, done.seconds) for name, done in _both(one, tree, wanted)}
    tell(f"{mebi(budget)} MiB: {found}")
    return {
        "budget": budget,
        **{n: {"ended": ended, "seconds": s} for n, (ended, s) in found.items()},
    }


def _in_turns(one: Run, tree: Tree, wanted: int, rounds: int) -> dict[str, Any]:
    """Run both operators in turns without a limit; ratios are the tree's to the
    multi-way join's.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in OPERATORS}
    for number in range(rounds):
        for name, done in _both(one, tree, wanted):
            if done.ended != "done":
                raise WrongResultError(f"{name} without a cap: {done.ended}")
            found[name].append((done.seconds, done.last["cpu_seconds"]))
        tell(f"round {number + 1}, batches of {one.batch:,}: {[found[n][-1] for n in OPERATORS]}")
    pairs = list(zip(*(found[name] for name in OPERATORS), strict=True))
    return {
        **{
            name: {
                "seconds": spread((seconds for seconds, _ in times), 2),
                "cpu_seconds": spread((cpu for _, cpu in times), 2),
            }
            for name, times in found.items()
        },
        "ratio": spread((tree[0] / multi[0] for multi, tree in pairs), 3),
        "cpu_ratio": spread((tree[1] / multi[1] for multi, tree in pairs), 3),
    }


def _both(one: Run, tree: Tree, wanted: int) -> Iterator[tuple[str, Outcome]]:
    for name, chosen in zip(OPERATORS, (None, tree), strict=True):
        yield name, run_worker(replace(one, tree=chosen), wanted)


def verdicts(entry: dict[str, Any]) -> dict[str, Verdict]:
    """Map each setting to whether the tree is faster: with a budget by the seconds of one run each,
    without a limit by CPU seconds within rounds.
    """
    found = {}
    for one in entry["capped"]:
        multi, tree = (one[name] for name in OPERATORS)
        name = f"with {one['share']:g} times the state"
        if tree["ended"] != "done":
            found[name] = Verdict.NO
        elif multi["ended"] != "done":
            found[name] = Verdict.YES
        else:
            ratio = Figure.once(tree["seconds"] / multi["seconds"])
            found[name] = ratio.verdict(1, least=False)
    for one in entry["ample"]:
        ratio = Figure.of(one["cpu_ratio"], entry["settings"]["rounds"])
        name = f"without a cap, by batches of {one['batch']:,}"
        found[name] = ratio.verdict(1, least=False)
    return found


def note(entry: dict[str, Any]) -> str:
    """Return a note on the crossover, or its absence, with the paper's figures for comparison."""
    found, data, between = verdicts(entry), entry["data"], entry["intermediate"]
    most = max((one["share"] for one in entry["capped"]), default=0.0)
    searched = (
        f"budgets up to {most:g} times the multi-way join's state"
        f" ({most * entry['state'] / data:.1f} times the input) and without a cap"
    )
    named = {
        verdict: "; ".join(name for name, one in found.items() if one is verdict)
        for verdict in Verdict
    }
    if named[Verdict.YES]:
        here = f"Here the tree is faster {named[Verdict.YES]}"
    else:
        here = f"Here no crossover was found in {searched}"
    if named[Verdict.UNDECIDED]:
        here += f"; undecided: {named[Verdict.UNDECIDED]}"
    without = ", ".join(
        f"{shown(one['cpu_ratio'], 2, sign=' times')} by batches of {one['batch']:,}"
        for one in entry["ample"]
    )
    return (
        "*Beside the paper's figures.* The paper (TPC-DS at scale 10, four tables of"
        f" {PAPER_INPUT:,} MB together, parallelism 32) has the multi-way join faster with 1 to"
        f" {PAPER_FASTER // 1024} GB of memory, {1024 / PAPER_INPUT:.1f} to"
        f" {PAPER_FASTER / PAPER_INPUT:.1f} times the input, and the best tree with"
        f" {PAPER_SLOWER // 1024} and 12 GB; it prints no run times. Its tree keeps 5.03 GB of"
        f" intermediate results, {PAPER_BETWEEN / PAPER_INPUT:.1f} times the input; here it keeps"
        f" {mebi(between)} MiB, {between / data:.1f} times the input of {mebi(data)} MiB. {here}."
        f" Without a cap the tree's CPU seconds are the multi-way join's {without}."
    )


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: run time by budget, and in turns without a limit."""
    capped = tuple(
        (
            f"{one['share']:g}",
            mebi(one["budget"]),
            *(
                f"{one[name]['seconds']:.1f}"
                if one[name]["ended"] == "done"
                else f"{one[name]['ended']} after {one[name]['seconds']:.1f}"
                for name in OPERATORS
            ),
        )
        for one in entry["capped"]
    )
    ample = tuple(
        (
            f"{one['batch']:,}",
            *(shown(one[n][w], 1) for n in OPERATORS for w in ("seconds", "cpu_seconds")),
            shown(one["ratio"], 2),
            shown(one["cpu_ratio"], 2),
        )
        for one in entry["ample"]
    )
    head = (
        *("batch", "multi-way, s", "CPU s", "best tree, s", "CPU s"),
        *("tree / multi-way, s", "tree / multi-way, CPU"),
    )
    by_budget = ("share", "budget, MiB", "multi-way, s", "best tree, s")
    return [
        *([Grid("by memory budget, one run each", by_budget, capped)] if capped else []),
        Grid("without a cap, in turns", head, ample),
    ]


PART = Benchmark(
    "crossover", "where the best tree is faster than the multi-way join", _options, _measure, tables
)


if __name__ == "__main__":
    sys.exit(run(PART, None))

"""Run time of the multi-way join and of the best tree of binary joins, by memory budget.

``python -m benchmarks.state.budgets [--json]``

Both use the backend ``lsm`` over the same tuples, and discard results. The best tree is the one
with the least run time in ample memory: all trees without cross products run over the first fifth
of the tuples, and the best of these over all tuples. A budget is the memory of a process, page
cache included, beyond that of a bare process (plus 16 MiB for pages of programs); it is given as a
share of the size on disk of the multi-way join's state.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.state import tpcds
from benchmarks.state.command import mebi, run, tpcds_options
from benchmarks.state.worker import AMPLE, PROGRAMS, Run, base
from benchmarks.state.worker import run as run_worker
from benchmarks.umjoin.operators.binary_tree import Tree, name_of, trees

#: Seconds, name of the tree, the tree, bytes of its intermediate state.
Timed = tuple[float, str, Tree, int]


#: Share of the tuples over which all trees run first.
_FIRST = 0.2
SHARES = (0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.5, 2.0)


def _options(parser: argparse.ArgumentParser) -> None:
    tpcds_options(parser)
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--finalists", type=int, default=3, help="trees to try on all tuples")
    parser.add_argument("--patience", type=float, default=600, help="seconds for a run")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    folder = tpcds.data(options.scale, options.cache)
    wanted = tpcds.expected(folder)
    bare = base(folder, home, options.batch)
    plain = Run(folder, home / "run", batch=options.batch, limit=AMPLE, patience=options.patience)

    state = run_worker(plain, wanted).last["state"]
    tried, found = ranked(plain, wanted, options.finalists)
    best = found[0]
    runs = []
    for share in options.shares:
        budget = int(share * state)
        rivals: list[tuple[str, Tree | None]] = [("multi-way", None), ("best tree", best[2])]
        for name, chosen in rivals:
            tell(f"{name} with {mebi(budget)} MiB")
            limit = max(1 << 20, budget // 2)
            capped = replace(plain, limit=limit, tree=chosen, cap=bare + budget + PROGRAMS)
            one = run_worker(capped, wanted)
            runs.append(
                {
                    "operator": name,
                    "share": share,
                    "budget": budget,
                    "ended": one.ended,
                    "seconds": one.seconds,
                    "complete": round(one.results / wanted, 4),
                    "intermediate": one.last.get("intermediate"),
                    "state": one.last.get("state"),
                }
            )
    return {
        "results": wanted,
        "bare": bare,
        "state": state,
        "best": best[1],
        "tried": [_told(one) for one in tried],
        "trees": [_told(one) for one in found],
        "runs": runs,
    }


def ranked(plain: Run, wanted: int, finalists: int) -> tuple[list[Timed], list[Timed]]:
    """Run all trees over a fifth of the tuples, the best of them over all; return the fastest
    first.
    """
    rows = sum(tpcds.rows_of(plain.data).values())
    first = replace(plain, only=max(1, round(_FIRST * rows / plain.batch)))
    tried = _timed(first, list(trees(tpcds.join_of(plain.data))), None)
    return tried, _timed(plain, [tree for _, _, tree, _ in tried[:finalists]], wanted)


def _timed(one: Run, candidates: Sequence[Tree], wanted: int | None) -> list[Timed]:
    """Run the trees; return the times of the finished runs, the fastest first."""
    found = []
    for tree in candidates:
        tell(f"tree {name_of(tree)}")
        done = run_worker(replace(one, tree=tree), wanted if one.only is None else None)
        if done.ended == "done":
            found.append((done.seconds, name_of(tree), tree, done.last["intermediate"]))
    return sorted(found, key=lambda t: t[:2])


def _told(one: Timed) -> dict[str, Any]:
    seconds, name, _, intermediate = one
    return {"tree": name, "seconds": seconds, "intermediate": intermediate}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: run time by budget, and run time of each tree."""
    rows = tuple(
        (
            f"{one['share']:g}",
            one["operator"],
            mebi(one["budget"]),
            one["ended"],
            f"{one['seconds']:.1f}",
            mebi(one["state"]),
            mebi(one["intermediate"]),
        )
        for one in entry["runs"]
    )
    head = ("share", "operator", "budget, MiB", "ended", "s", "state, MiB", "intermediate, MiB")
    columns = ("tree", "s", "intermediate, MiB")

    def listed(found: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], ...]:
        return tuple((t["tree"], f"{t['seconds']:.1f}", mebi(t["intermediate"])) for t in found)

    return [
        Grid("by memory budget", head, rows, texts=2),
        Grid("trees over all tuples, with ample memory", columns, listed(entry["trees"])),
        Grid("trees over the first fifth", columns, listed(entry["tried"])),
    ]


PART = Benchmark("budgets", "multi-way join and best tree", _options, _measure, tables)


if __name__ == "__main__":
    sys.exit(run(PART, None))

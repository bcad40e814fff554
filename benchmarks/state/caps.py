"""Results of a join with less memory than its state: the backends ``lsm`` and ``memory`` under
limits.

``python -m benchmarks.state.caps [--json]``

Both run the multi-way join of UMJoin's section 4 over TPC-DS, with rows in random order. ``need``
is the anonymous memory that the in-memory operator takes without a limit, minus that of the same
process with hardly any state (interpreter, libraries, compiled code, one batch). Then each operator
runs in a control group with a memory limit: the memory of such a bare process, plus a share of the
need, plus 16 MiB for pages of programs. Page cache counts, there is no swap, and a process that
needs more is killed. ``lsm`` runs once more with a limit by the size of the tuples as Arrow columns
instead of the need.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.session import WrongResultError
from benchmarks.state import tpcds
from benchmarks.state.command import mebi, run, tpcds_options
from benchmarks.state.worker import PROGRAMS, Run, base
from benchmarks.state.worker import run as run_worker
from tests.support.surroundings.cgroups import UNAVAILABLE, memory_group

SHARES = (0.25, 0.5, 0.75, 1.0)
#: Number of points of a run in its chart.
_POINTS = 40


def _options(parser: argparse.ArgumentParser) -> None:
    tpcds_options(parser)
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES), help="of the need")
    parser.add_argument(
        "--of-data", type=float, nargs="*", default=[0.25], help="lsm also with these shares of it"
    )
    parser.add_argument("--patience", type=float, default=1800, help="seconds for a run")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    folder = tpcds.data(options.scale, options.cache)
    wanted = tpcds.expected(folder)
    bare = base(folder, home, options.batch)
    tell("memory without a cap")
    free = run_worker(Run(folder, home / "free", "memory", batch=options.batch), wanted)
    if free.ended != "done":
        raise WrongResultError(f"{free.results} results, DuckDB has {wanted}")
    need = free.last["anonymous"] - bare
    size = sum(r.nbytes for b in tpcds.batches(folder, options.batch) for r in b.values())
    entry: dict[str, Any] = {
        "tuples": sum(tpcds.rows_of(folder).values()),
        "results": wanted,
        "bare": bare,
        "need": need,
        "data": size,
        "state": free.last["memory"],
        "uncapped_seconds": free.seconds,
        "runs": [],
    }
    with memory_group(1 << 40) as group:
        if group is None:
            return {**entry, "skipped": UNAVAILABLE}
    runs = [("need", share, kind) for share in options.shares for kind in ("lsm", "memory")]
    runs += [("data", share, "lsm") for share in options.of_data]
    for of, share, kind in runs:
        given = int(share * (need if of == "need" else size))
        cap = bare + given + PROGRAMS
        tell(f"{kind} with {share:g} of the {of}: {mebi(cap)} MiB")
        # The rest of the memory is for partial results and for pages.
        limit = max(1 << 20, given // 4) if kind == "lsm" else 1 << 40
        one = Run(
            folder,
            home / f"{kind}-{of}-{share}",
            kind,
            limit,
            options.batch,
            cap=cap,
            patience=options.patience,
        )
        found = run_worker(one, wanted)
        step = max(1, len(found.points) // _POINTS)
        entry["runs"].append(
            {
                "kind": kind,
                "of": of,
                "share": share,
                "cap": cap,
                "ended": found.ended,
                "complete": round(found.results / wanted, 4),
                "seconds": found.seconds,
                "peak": found.last.get("peak"),
                "points": [*found.points[::step], *found.points[-1:]],
            }
        )
    return entry


def note(entry: dict[str, Any]) -> str:
    """Return a note with the paper's figures, for comparison."""
    ended = {
        kind: ", ".join(
            f"{100 * one['complete']:.1f} % at {one['share']:g}"
            for one in entry["runs"]
            if one["kind"] == kind and one.get("of", "need") == "need"
        )
        for kind in ("lsm", "memory")
    }
    return (
        "*Beside the paper's figures.* With 2, 3 and 4 GB (1.9, 2.8 and 3.7 times the tables'"
        " 1,093 MB) the paper's UMJoin has all results. Its rival in memory, MultiStream, ends"
        " early with 2 GB, at about two thirds of them (the text names UMJoin there, against its"
        " own conclusion), and with 3 GB near the end; with 4 GB it has all. Here, by share of the"
        f" need: `lsm` {ended['lsm']}; `memory` {ended['memory']}. Gigabytes there and shares here"
        " can't be compared: the paper does not print the need of its operator in memory."
    )


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per run."""
    rows = tuple(
        (
            f"{one['share']:g} of the {one.get('of', 'need')}",
            one["kind"],
            mebi(one["cap"]),
            one["ended"],
            f"{100 * one['complete']:.1f} %",
            f"{one['seconds']:.1f}",
            mebi(one["peak"]),
        )
        for one in entry["runs"]
    )
    title = (
        f"{entry['results']:,} results of {entry['tuples']:,} tuples; a bare process takes "
        f"{mebi(entry['bare'])} MiB, the operator in memory {mebi(entry['need'])} MiB more"
        + (f"; the tuples alone {mebi(entry['data'])} MiB" if "data" in entry else "")
    )
    head = ("share", "backend", "cap, MiB", "ended", "results", "s", "peak, MiB")
    return [Grid(title, head, rows, texts=2)]


PART = Benchmark("caps", "complete results under memory caps", _options, _measure, tables)


if __name__ == "__main__":
    sys.exit(run(PART, None))

"""The command line of the planning benchmark."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import anabranch_planner
from anabranch_contract.plans.plan import Objective
from benchmarks.planner import (
    part_figure9,
    part_incremental,
    part_mixed,
    part_rivals,
    part_solvers,
    part_targets,
    part_tpch,
)
from benchmarks.planner.runs import Environment, WrongPlanError
from benchmarks.planner.tables import tables
from benchmarks.planner.worker import WorkerError
from benchmarks.report.figures import document, line, show, tell


class Part(StrEnum):
    """Parts of the planning benchmark, in order of measurement."""

    TARGETS = "targets"
    INCREMENTAL = "incremental"
    FIGURE9 = "figure9"
    RIVALS = "rivals"
    SOLVERS = "solvers"
    TPCH = "tpch"
    MIXED = "mixed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code. Lines of finished parts stay if a part fails."""
    options = _options(arguments)
    sources = fingerprint()
    for part in options.only:
        load = os.getloadavg()
        try:
            found = _measure(part, options)
        except (WrongPlanError, WorkerError) as error:
            tell(f"no figures for {part}: {error}")
            return 1
        if fingerprint() != sources:
            tell(f"no figures for {part}: the planner's code changed while it was measured")
            return 1
        head = document("planner", _settings(part, options), load)
        entry = head | {"part": str(part), "sources": sources} | found
        if options.json:
            sys.stdout.write(line(entry) + "\n")
            sys.stdout.flush()
        else:
            show([grid.rich() for grid in tables(entry)])
    return 0


def fingerprint() -> str:
    """Return a digest of the planner's code on disk, which every worker loads."""
    digest = hashlib.sha256()
    folder = Path(anabranch_planner.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planner",
        description="how long plans take to find, how good they are, what they save",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON per part")
    parser.add_argument("--seeds", type=int, default=20, help="problems per shape")
    parser.add_argument("--only", type=Part, nargs="+", default=list(Part), choices=list(Part))
    parser.add_argument(
        "--parallelism", type=_numbers, default=(1, 4), help="partitions per store, like 1,4"
    )
    parser.add_argument("--threads", type=_numbers, default=(1, 2), help="of the solvers, like 1,2")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for a proven optimum")
    parser.add_argument("--rival-limit", type=float, default=60.0, help="the same, for rivals")
    parser.add_argument("--solver-limit", type=float, default=20.0, help="the same, for solvers")
    parser.add_argument(
        "--rival-objectives",
        type=Objective,
        nargs="+",
        default=[Objective.TUPLES],
        help="of the rivals",
    )
    parser.add_argument(
        "--environment", type=Environment, default=Environment.NATURAL, help="of figure 9"
    )
    parser.add_argument("--scale", type=float, default=0.01, help="of the data behind TPC-H")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds: at least 1 is needed")
    return options


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


def _settings(part: Part, options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that affect a part."""
    seeds = {"seeds": options.seeds}
    parallelism = {"parallelism": list(options.parallelism)}
    limit = {"limit": options.limit}
    found: dict[Part, dict[str, Any]] = {
        Part.TARGETS: seeds | parallelism | limit,
        Part.INCREMENTAL: seeds | parallelism | limit,
        Part.FIGURE9: seeds | limit | {"environment": str(options.environment)},
        Part.RIVALS: seeds | parallelism | {"limit": options.rival_limit, "threads": 1},
        Part.SOLVERS: seeds
        | {"parallelism": 1, "threads": list(options.threads), "limit": options.solver_limit},
        Part.TPCH: seeds | parallelism | limit | {"scale": options.scale},
        Part.MIXED: seeds | limit | {"scale": options.scale},
    }
    return found[part]


def _measure(part: Part, options: argparse.Namespace) -> dict[str, Any]:
    seeds, limit, parallelisms = options.seeds, options.limit, options.parallelism
    match part:
        case Part.TARGETS:
            return part_targets.measure_targets(part_targets.Options(seeds, parallelisms, limit))
        case Part.INCREMENTAL:
            return part_incremental.measure_incremental(
                part_incremental.Options(seeds, parallelisms, limit)
            )
        case Part.FIGURE9:
            return part_figure9.measure_figure9(
                part_figure9.Options(seeds, options.environment, limit)
            )
        case Part.RIVALS:
            return part_rivals.measure_rivals(
                part_rivals.Options(
                    seeds, parallelisms, options.rival_objectives, options.rival_limit
                )
            )
        case Part.SOLVERS:
            return part_solvers.measure_solvers(
                part_solvers.Options(seeds, options.threads, options.solver_limit)
            )
        case Part.TPCH:
            return part_tpch.measure_tpch(
                part_tpch.Options(seeds, parallelisms, options.scale, limit)
            )
        case Part.MIXED:
            return part_mixed.measure_mixed(part_mixed.Options(seeds, options.scale, limit))

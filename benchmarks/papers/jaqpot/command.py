"""Subcommands of ``python -m benchmarks.papers jaqpot``."""

from __future__ import annotations

import argparse
from functools import partial

from anabranch_contract.plans.plan import Objective
from anabranch_planner.command.problem_file import parse_problem
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from benchmarks.papers.commands import command, forward
from benchmarks.papers.jaqpot import report, simulation
from benchmarks.papers.jaqpot.allocate.policies import Policy
from benchmarks.papers.jaqpot.allocate.report import (
    allocate_problem,
    allocation_document,
    allocation_text,
)
from benchmarks.papers.jaqpot.live import overload
from benchmarks.papers.jaqpot.rations import budgets, cost, forests
from benchmarks.papers.jaqpot.rations.command import run_part
from benchmarks.papers.problems import problem_argument, read_document, timed, write

ABOUT = "JAQPOT: limited CPU time divided among probes"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands: allocation for a problem file, the benchmarks, and their report."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    allocate = command(commands, "allocate", "ration the probes of a problem's plan", _allocate)
    problem_argument(allocate)
    allocate.add_argument(
        "--capacity", type=float, required=True, help="CPU time, as a share of all probes' cost"
    )
    allocate.add_argument(
        "--policy", type=Policy, choices=list(Policy), default=Policy.EXACT, help="allocation"
    )
    forward(commands, "simulation", simulation.PART.about, simulation.main)
    for part in (budgets.BENCHMARK, cost.BENCHMARK, forests.BENCHMARK):
        forward(commands, part.name, part.about, partial(run_part, part))
    forward(commands, "overload", overload.BENCHMARK.about, overload.main)
    forward(commands, "report", "write docs/benchmarks-jaqpot.md from saved figures", report.main)


def _allocate(options: argparse.Namespace) -> int:
    problem = parse_problem(read_document(options.problem))
    charged = problem.objective or Objective.TUPLES
    limits = problem.limits
    limited = any(limit is not None for limit in (limits.memory, limits.copies, limits.mirs))
    planned = Options(
        objective=charged,
        parallelism=problem.parallelism,
        mir=problem.mir,
        partitioning=problem.partitioning,
        limits=limits if limited else None,
    )
    plan = optimise(problem.queries, problem.statistics, planned)
    work = partial(allocate_problem, problem, plan, charged, options.capacity, options.policy)
    found, seconds = timed(work)
    write(
        allocation_document(found, seconds), allocation_text(found, seconds), as_json=options.json
    )
    return 0

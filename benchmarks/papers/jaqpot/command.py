"""Subcommands of ``python -m benchmarks.papers jaqpot``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.papers.commands import forward
from benchmarks.papers.jaqpot import report, simulation
from benchmarks.papers.jaqpot.live import overload
from benchmarks.papers.jaqpot.rations import budgets, cost, forests
from benchmarks.papers.jaqpot.rations.command import run_part

if TYPE_CHECKING:
    import argparse

ABOUT = "JAQPOT: limited CPU time divided among probes"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the benchmarks and their report."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    forward(commands, "simulation", simulation.PART.about, simulation.main)
    for part in (budgets.BENCHMARK, cost.BENCHMARK, forests.BENCHMARK):
        forward(commands, part.name, part.about, partial(run_part, part))
    forward(commands, "overload", overload.BENCHMARK.about, overload.main)
    forward(commands, "report", "write docs/benchmarks-jaqpot.md from saved figures", report.main)

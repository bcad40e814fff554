"""Subcommand of the dpPick paper: probe orders of a problem file's queries, by dpPick
and rivals.
"""

from __future__ import annotations

import argparse
from enum import StrEnum
from functools import partial

from anabranch_planner.command.problem_file import parse_problem
from benchmarks.papers.commands import command
from benchmarks.papers.dppick.problem import Accounting, Prices, constant, hash_table, sorted_array
from benchmarks.papers.dppick.report import order_document, order_queries, order_text
from benchmarks.papers.dppick.search import Ablation, Algorithm
from benchmarks.papers.problems import problem_argument, read_document, timed, write

ABOUT = "dpPick: probe orders of each query by itself"


class Backend(StrEnum):
    """Dependence of a look-up's cost in a backend on the backend's number of keys (Eq. 5 and 6)."""

    CONSTANT = "constant"
    HASH = "hash"
    SORTED = "sorted"


#: Number of slots of a backend's hash table in Eq. 5, whose constant ``c`` is 1.
_SLOTS = float(1 << 20)
_LOOKUPS = {
    Backend.CONSTANT: constant,
    Backend.HASH: hash_table(1.0, _SLOTS),
    Backend.SORTED: sorted_array,
}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand ``order``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    order = command(commands, "order", "order the probes of each query by itself", _order)
    problem_argument(order)
    order.add_argument(
        "--algorithm", choices=Algorithm, type=Algorithm, default=Algorithm.EXACT, help="of search"
    )
    order.add_argument(
        "--ablation", choices=Ablation, type=Ablation, help="search by this cost alone"
    )
    order.add_argument(
        "--cost",
        choices=Accounting,
        type=Accounting,
        default=Accounting.TUPLE,
        help="tuple: every match is a probe; paper: Eq. 8 of dpPick as printed",
    )
    order.add_argument(
        "--backend",
        choices=Backend,
        type=Backend,
        default=Backend.CONSTANT,
        help="cost of a query by the number of keys",
    )
    order.add_argument("--alpha-q", type=float, default=1.0, help="price of a query of a backend")
    order.add_argument("--alpha-m", type=float, default=1.0, help="price of a matched record")


def _order(options: argparse.Namespace) -> int:
    problem = parse_problem(read_document(options.problem))
    prices = Prices(options.alpha_q, options.alpha_m, _LOOKUPS[options.backend])
    ordered, seconds = timed(
        partial(order_queries, problem, options.algorithm, options.ablation, options.cost, prices)
    )
    document, text = order_document(ordered, seconds), order_text(ordered, seconds)
    write(document, text, as_json=options.json)
    return 0

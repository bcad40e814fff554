"""Subcommands for PMJoin's placements: of a problem file's queries, and of random streams."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from benchmarks.papers.commands import command
from benchmarks.papers.pmjoin.hosted import parse_hosted
from benchmarks.papers.pmjoin.one_host import compared, text
from benchmarks.papers.pmjoin.partitioners import Partitioner
from benchmarks.papers.pmjoin.report import (
    Algorithm,
    place_document,
    place_queries,
    place_text,
)
from benchmarks.papers.problems import problem_argument, read_document, timed, write

ABOUT = "PMJoin: placement of joins on hosts"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands ``place`` and ``one-host``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    place = command(commands, "place", "place the joins, so that few tuples travel", _place)
    problem_argument(place)
    place.add_argument(
        "--hosts",
        type=int,
        required=True,
        help="number of hosts; streams that name none are assigned to them in turn",
    )
    place.add_argument(
        "--algorithm",
        choices=Algorithm,
        type=Algorithm,
        default=Algorithm.EXACT,
        help="of placement; exact: up to 14 streams",
    )
    place.add_argument(
        "--partitions", type=int, default=1, help="groups of values with plans of their own"
    )
    place.add_argument(
        "--partitioner",
        choices=Partitioner,
        type=Partitioner,
        default=Partitioner.PLAN,
        help="assignment of values to groups",
    )
    about = "compare placements with one host for all joins of a partition"
    one_host = command(commands, "one-host", about, _one_host)
    one_host.add_argument("--streams", type=int, default=4, help="number of streams")
    one_host.add_argument("--seeds", type=int, default=10, help="number of draws")
    one_host.add_argument("--window", type=float, default=100.0, help="longest window, seconds")


def _place(options: argparse.Namespace) -> int:
    given = parse_hosted(read_document(options.problem))
    found, seconds = timed(
        partial(
            place_queries,
            given,
            options.algorithm,
            options.partitioner,
            options.partitions,
            options.hosts,
        )
    )
    write(place_document(found, seconds), place_text(found, seconds), as_json=options.json)
    return 0


def _one_host(options: argparse.Namespace) -> int:
    sys.stdout.write(text(compared(options.streams, options.seeds, options.window)))
    return 0

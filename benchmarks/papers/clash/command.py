"""Subcommands of ``python -m benchmarks.papers clash``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from anabranch_contract.errors import PlannerError
from benchmarks.papers.clash.environment import natural_problem, tree_problem, write_yaml
from benchmarks.papers.commands import command

ABOUT = "CLASH: the joint plan's integer program as printed, and random problems"
#: Default number of attributes of a relation, in problems of kind ``tree`` and ``natural``.
PER_RELATION = 3


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand ``random`` to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    random = command(commands, "random", "write a random problem, to compare planners", _random)
    random.add_argument("--relations", type=int, required=True, help="number of relations")
    random.add_argument("--queries", type=int, required=True, help="number of distinct queries")
    random.add_argument("--size", type=int, required=True, help="relations per query")
    random.add_argument("--seed", type=int, required=True, help="equal seeds, equal problems")
    random.add_argument(
        "--attributes",
        type=int,
        help="natural: size of the pool of names (default: one per relation); "
        f"tree: attributes per relation (default: {PER_RELATION})",
    )
    random.add_argument(
        "--per-relation", type=int, default=PER_RELATION, help="natural: attributes per relation"
    )
    random.add_argument("--environment", choices=("natural", "tree"), default="natural")
    random.add_argument("-o", "--out", type=Path, help="file; default: standard output")


def _random(options: argparse.Namespace) -> int:
    shape = {"relations": options.relations, "count": options.queries, "size": options.size}
    if options.environment == "natural":
        problem = natural_problem(
            options.seed,
            **shape,
            attributes=options.attributes,
            per_relation=options.per_relation,
        )
    else:
        attributes = PER_RELATION if options.attributes is None else options.attributes
        problem = tree_problem(options.seed, **shape, attributes=attributes)
    made = f"clash random --environment {options.environment} --relations {options.relations}"
    made += f" --queries {options.queries} --size {options.size} --seed {options.seed}"
    if options.attributes is not None:
        made += f" --attributes {options.attributes}"
    if options.environment == "natural" and options.per_relation != PER_RELATION:
        made += f" --per-relation {options.per_relation}"
    text = write_yaml(problem, f"python -m benchmarks.papers {made}")
    if problem.shortfall:
        sys.stderr.write(f"note: {problem.shortfall}\n")
    if options.out is None:
        sys.stdout.write(text)
        return 0
    try:
        options.out.write_text(text, encoding="utf-8")
    except OSError as cause:
        reason = (cause.strerror or type(cause).__name__).lower()
        raise PlannerError(
            "no-file", reason, field=str(options.out), remedy="check the path"
        ) from cause
    return 0

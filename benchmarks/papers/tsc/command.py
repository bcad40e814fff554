"""``python -m benchmarks.papers tsc``: plans of statements before and after TSC's conversion."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from anabranch_contract.errors import PlannerError, QueryError
from anabranch_planner.logical.nodes import to_document, to_dot, to_text
from anabranch_planner.logical.tsc import convert, multi_joins
from benchmarks.papers.commands import command
from benchmarks.papers.tsc.catalogs import KNOWN, parse_catalog, text_of
from benchmarks.papers.tsc.translate import translate

ABOUT = "Multi-way joins in the plans of any statement (UMJoin's Two-Step Convert)."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    found = command(commands, "convert", "Convert the binary joins of a statement.", _convert)
    found.add_argument("--sql", metavar="FILE", required=True, help="One statement; - is stdin.")
    found.add_argument("--catalog", required=True, help="tpch, tpcds, or a YAML file of tables.")
    found.add_argument("--dialect", default="spark", help="The statement's, by sqlglot's name.")
    found.add_argument("--dot", action="store_true", help="Write the plan as a graph.")
    found.add_argument("--json", action="store_true", help="Write one line of JSON.")


def _convert(options: argparse.Namespace) -> int:
    known = options.catalog in KNOWN
    catalog = parse_catalog(text_of(options.catalog) if known else _read(options.catalog))
    try:
        before = translate(_read(options.sql), catalog, options.dialect)
    except QueryError as cause:
        raise cause.moved(field=options.sql) from cause
    after = convert(before)
    found = multi_joins(after)
    if options.dot:
        text = to_dot(after)
    elif options.json:
        joins = [
            {
                "inputs": [node.name for node in join.inputs],
                "predicates": [c.text for c in join.predicates],
                "residual": [c.text for c in join.residual],
                "replaces": join.replaces,
            }
            for join in found
        ]
        plans = {"before": to_document(before), "after": to_document(after), "multijoins": joins}
        text = json.dumps(plans, ensure_ascii=False)
    else:
        parts = [f"before\n{to_text(before)}\n", f"after\n{to_text(after)}\n"]
        text = "\n".join([*parts, f"{len(found)} multi-way joins"])
    sys.stdout.write(text + "\n")
    return 0


def _read(name: str) -> str:
    try:
        if name == "-":
            return sys.stdin.read()
        return Path(name).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        raise PlannerError(
            "no-file", str(cause), field=shlex.quote(name), remedy="name a text file"
        ) from cause

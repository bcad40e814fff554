"""``python -m benchmarks.papers PAPER COMMAND ...``: examples, rivals, simulations.

Exit codes: 0; 1 a benchmark failed; 2 an argument or a file is unusable, with one line of reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from anabranch_contract.errors import PlannerError
from benchmarks.papers.clash import command as clash
from benchmarks.papers.commands import Paper
from benchmarks.papers.dppick import command as dppick
from benchmarks.papers.jaqpot import command as jaqpot
from benchmarks.papers.pmjoin import command as pmjoin
from benchmarks.papers.tsc import command as tsc

UNUSABLE = 2
#: Name of the paper -> the module with its subcommands.
PAPERS: Mapping[str, Paper] = {
    "clash": clash,
    "dppick": dppick,
    "jaqpot": jaqpot,
    "pmjoin": pmjoin,
    "tsc": tsc,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers")
    papers = parser.add_subparsers(metavar="PAPER", required=True)
    for name, paper in PAPERS.items():
        paper.add(papers.add_parser(name, help=paper.ABOUT, description=paper.ABOUT))
    options, rest = parser.parse_known_args(arguments)
    if not options.forwards and rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        code: int = options.run(rest if options.forwards else options)
    except PlannerError as cause:
        sys.stderr.write(f"error: {' '.join(str(cause).split())}\n")
        return UNUSABLE
    return code


if __name__ == "__main__":
    sys.exit(main())

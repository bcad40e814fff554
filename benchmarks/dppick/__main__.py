"""``python -m benchmarks.dppick [--json] [--only PART ...] [options of one part]``; ``--report``.

Without ``--report`` all parts run and print one line of JSON each. If a part fails, its line is
missing, and the other parts run nevertheless. Options that are not listed here belong to the part
that ``--only`` names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.dppick import ablations, decisions, drifting, orders, sweeps
from benchmarks.dppick.command import run
from benchmarks.dppick.report import report
from benchmarks.report.figures import ROOT

BENCHMARKS = tuple(module.PART for module in (orders, ablations, sweeps, drifting, decisions))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; returns the exit code: 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dppick")
    names = [one.name for one in BENCHMARKS]
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART")
    parser.add_argument("--report", action="store_true", help="write the page from saved lines")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the page")
    options, rest = parser.parse_known_args(arguments)
    if options.report:
        return report(options.docs)
    if rest and len(options.only) > 1:
        parser.error(f"{rest[0]} belongs to one part: name it by --only")
    given = [*(["--json"] if options.json else []), *rest]
    return max([run(one, given) for one in BENCHMARKS if one.name in options.only])


if __name__ == "__main__":
    sys.exit(main())

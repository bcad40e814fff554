"""``python -m benchmarks.papers PAPER COMMAND ...``.

Exit codes: 0; 2 an argument or a file can't be used.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from anabranch_contract.errors import PlannerError
from benchmarks.papers.dppick import command as dppick
from benchmarks.papers.pmjoin import command as pmjoin

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Paper -> the module whose ``add`` gives its parser commands; a command sets ``run``.
PAPERS = {"dppick": dppick, "pmjoin": pmjoin}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    papers = parser.add_subparsers(metavar="PAPER", required=True)
    for name, module in PAPERS.items():
        module.add(papers.add_parser(name, help=(module.__doc__ or "").partition("\n")[0]))
    options = parser.parse_args(arguments)
    try:
        code: int = options.run(options)
    except PlannerError as cause:
        sys.stderr.write(f"error: {' '.join(str(cause).split())}\n")
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())

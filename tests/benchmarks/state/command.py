"""What the command lines of the state store's benchmarks have in common."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.benchmarks.grids import Grid

#: Where TPC-DS data is kept between runs.
CACHE = Path(tempfile.gettempdir()) / "anabranch-tpcds"


@dataclass(frozen=True, slots=True)
class Part:
    """One benchmark.

    Attributes:
        name: also that of its module.
        about: one line for its help.
        options: adds its options to a parser.
        measure: from its options and a folder of its own to its figures, as JSON.
        tables: from its line to what people read.
    """

    name: str
    about: str
    options: Callable[[argparse.ArgumentParser], None]
    measure: Callable[[argparse.Namespace, Path], dict[str, Any]]
    tables: Callable[[dict[str, Any]], list[Grid]]


def run(part: Part, arguments: Sequence[str] | None = None) -> int:
    """Entry point of a benchmark's module; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.benchmarks.state.{part.name}",
        description=part.about,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument(
        "--folder", type=Path, help="where state is written, on the disk to measure"
    )
    part.options(parser)
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    home = Path(tempfile.mkdtemp(prefix=f"anabranch-{part.name}-", dir=options.folder))
    try:
        found = part.measure(options, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    settings = {k: v for k, v in vars(options).items() if k not in ("json", "folder", "cache")}
    entry = figures.document("state", settings, load) | {"part": part.name} | found
    if options.json:
        sys.stdout.write(figures.line(entry) + "\n")
        sys.stdout.flush()
    else:
        figures.show([grid.rich() for grid in part.tables(entry)])
    return 0


def tpcds_options(parser: argparse.ArgumentParser) -> None:
    """What benchmarks over TPC-DS have in common."""
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-DS scale factor")
    parser.add_argument("--batch", type=int, default=20_000, help="tuples per batch")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for generated data")


def mebi(count: float | None) -> str:
    """Bytes, for people.

    >>> mebi(3 * 2**19), mebi(None)
    ('1.5', '–')
    """
    return "–" if count is None else f"{count / 2**20:,.1f}"

"""What the command lines of all these benchmarks have in common."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch_client.errors import ClientError
from tests.benchmarks.figures import Spread, document, line, show, tell
from tests.benchmarks.session import WrongResultError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.benchmarks.grids import Grid


@dataclass(frozen=True, slots=True)
class Benchmark:
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


def run(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Entry point of a benchmark's module; returns the exit code.

    Nothing is printed on standard output where a run had other results than its oracle.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.benchmarks.runtime.{benchmark.name}",
        description=benchmark.about,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--tasks", type=int, default=os.cpu_count(), help="Spark's")
    parser.add_argument("--parallelism", type=int, default=1, help="partitions per store")
    benchmark.options(parser)
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    home = Path(tempfile.mkdtemp(prefix=f"anabranch-{benchmark.name}-"))
    try:
        found = benchmark.measure(options, home)
    except (WrongResultError, ClientError, TimeoutError) as error:
        tell(f"no figures for {benchmark.name}: {error}; {home} is kept")
        return 1
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    shutil.rmtree(home)
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    entry = document("runtime", settings, load) | {"part": benchmark.name} | found
    if options.json:
        sys.stdout.write(line(entry) + "\n")
        sys.stdout.flush()
    else:
        show([grid.rich() for grid in benchmark.tables(entry)])
    return 0


def master(options: argparse.Namespace) -> str:
    """Spark's master for ``--tasks``."""
    return f"local[{options.tasks}]"


def spread(figures: Iterable[float], digits: int = 0) -> dict[str, float]:
    """Median and range, as JSON."""
    return Spread.of(figures).rounded(digits)


def quantile(figures: Iterable[float], share: float) -> float:
    """The smallest figure that at least ``share`` of all are not above.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5), quantile([1.0, 2.0], 0.99)
    (2.0, 2.0)
    """
    found = sorted(figures)
    return found[max(0, min(len(found) - 1, -int(-share * len(found) // 1) - 1))]


def made(folder: Path) -> Path:
    """``folder``, which is made."""
    folder.mkdir(parents=True)
    return folder

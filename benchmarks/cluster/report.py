"""``docs/benchmarks-cluster.md`` from saved figures.

``python -m benchmarks.cluster.report [--docs docs]`` reads ``docs/benchmarks/cluster.jsonl``, one
line per run of one benchmark, and shows the newest of each. Equal lines give equal bytes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import changes, hosts, media, meeting, traffic
from benchmarks.report.figures import ROOT, newest, tell
from benchmarks.report.grids import Grid
from benchmarks.report.sections import section

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = {
    "One, two and three hosts": hosts.BENCHMARK,
    "Hosts that come and go": changes.BENCHMARK,
    "Bytes against their prediction": traffic.BENCHMARK,
    "Media": media.BENCHMARK,
    "Meetings": meeting.BENCHMARK,
}
_INTRODUCTION = """\
# Benchmarks of clusters

Made by `python -m benchmarks.cluster.report` from the lines in
[`benchmarks/cluster.jsonl`](benchmarks/cluster.jsonl), the newest of each benchmark. Change the
benchmarks, not this file. How a cluster works is in [cluster.md](cluster.md).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description="docs/benchmarks-cluster.md from saved figures")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the report")
    docs = parser.parse_args(arguments).docs
    found = newest(docs, "cluster")
    if not found:
        tell(f"{docs / 'benchmarks'} has no figures of clusters")
        return 1
    parts = [_INTRODUCTION]
    if rows := targets(found):
        grid = Grid("targets", ("target", "wanted", "found", "held"), rows)
        parts += ["## Targets\n", grid.markdown()]
    for heading, part in PARTS.items():
        if part.name in found:
            parts += section(docs, heading, part, found[part.name], {})
    (docs / "benchmarks-cluster.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def targets(found: dict[str, dict[str, Any]]) -> tuple[tuple[str, ...], ...]:
    """What was wanted, what was found, and whether that holds; of the benchmarks there are."""
    rows: list[tuple[str, ...]] = []
    for part, of_part in (
        (hosts.BENCHMARK, _of_hosts),
        (changes.BENCHMARK, _of_changes),
        (traffic.BENCHMARK, _of_traffic),
    ):
        if part.name in found:
            rows += of_part(found[part.name])
    return tuple(rows)


def _of_hosts(entry: dict[str, Any]) -> list[tuple[str, ...]]:
    """With the most hosts that were measured, against the fewest."""
    runs = entry["runs"]
    most, least = (pick(runs["large"], key=int) for pick in (max, min))
    pairs = {size: list(zip(some[most], some[least], strict=True)) for size, some in runs.items()}
    share = [one["largest_share"] * int(most) for one in runs["large"][most]]
    pair = f"{most} hosts against {least}"
    return [
        _row(
            f"{pair}: state of the largest host, of an equal share", "≤ 1.15 ×", share, 1.15, " ×"
        ),
        _row(
            f"{pair}: CPU, same work, large batches",
            "≤ 1.4 ×",
            [a["cpu_ms"] / b["cpu_ms"] for a, b in pairs["large"]],
            1.4,
            " ×",
        ),
        _row(
            f"{pair}: a small batch takes longer by",
            "≤ 150 ms",
            [a["batch_ms"] - b["batch_ms"] for a, b in pairs["small"]],
            150,
            " ms",
        ),
    ]


def _of_changes(entry: dict[str, Any]) -> list[tuple[str, ...]]:
    """Of batches after a host has come or gone, against their neighbours."""
    rows = []
    for kind, runs in entry["runs"].items():
        for figure, name, most in (
            ("first", "first batch", 2.0),
            ("dealt", "batch in which partitions are dealt anew", 2.0),
            ("next", "next ten batches, median", 1.1),
        ):
            found = [run[figure] for run in runs]
            rows.append(_row(f"a host was {kind}: {name}", f"≤ {most:g} ×", found, most, " ×"))
    return rows


def _of_traffic(entry: dict[str, Any]) -> list[tuple[str, ...]]:
    """Of bytes between hosts, by edge and in all."""
    shares = traffic.compared(entry)
    rows: list[tuple[str, ...]] = [
        (
            f"bytes of edges to {name}",
            "within 15 %",
            f"{shares[kind]:.0%}",
            _told(shares[kind] == 1),
        )
        for kind, name in (("relations", "relations"), ("results", "intermediate results"))
    ]
    ratio = [shares["ratio"]]
    rows.append(_row("bytes, of those of attributes at random", "≤ 0.6 ×", ratio, 0.6, " ×"))
    return rows


def _row(name: str, wanted: str, found: Sequence[float], most: float, unit: str) -> tuple[str, ...]:
    median = statistics.median(found)
    return name, wanted, f"{median:.{2 if most < 10 else 0}f}{unit}", _told(median <= most)


def _told(held: bool) -> str:
    return "yes" if held else "no"


if __name__ == "__main__":
    sys.exit(main())

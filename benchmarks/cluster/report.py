"""Writes ``docs/benchmarks-cluster.md`` from saved figures of the cluster benchmarks.

``python -m benchmarks.cluster.report [--docs docs]`` reads ``docs/benchmarks/cluster.jsonl``, one
line per run of one benchmark, and shows the newest line of each benchmark. Equal lines give an
equal page, byte for byte.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.cluster import changes, hosts, media, meeting, traffic
from benchmarks.report.figures import Spread, docs_folder, newest, tell
from benchmarks.report.sections import section
from benchmarks.report.targets import SIZES, Figure, Target, grid, paragraphs

PARTS = {
    "One, two and three hosts": hosts.BENCHMARK,
    "Hosts that come and go": changes.BENCHMARK,
    "Bytes against their prediction": traffic.BENCHMARK,
    "Media": media.BENCHMARK,
    "All-gathers": meeting.BENCHMARK,
}
_INTRODUCTION = """\
# Benchmarks of clusters

Made by `python -m benchmarks.cluster.report` from the lines in
[`benchmarks/cluster.jsonl`](benchmarks/cluster.jsonl), the newest of each benchmark. Change the
benchmarks, not this file. How a cluster works is in [cluster.md](cluster.md).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    docs = docs_folder("cluster", arguments)
    found = newest(docs, "cluster")
    if not found:
        tell(f"{docs / 'benchmarks'} has no figures of clusters")
        return 1
    parts = [_INTRODUCTION]
    if wanted := targets(found):
        parts += ["## Targets\n", *paragraphs(grid(wanted))]
    for heading, part in PARTS.items():
        if part.name in found:
            parts += section(docs, heading, part, found[part.name], {})
    (docs / "benchmarks-cluster.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def targets(found: dict[str, dict[str, Any]]) -> tuple[Target, ...]:
    """Return the targets of all cluster benchmarks that have figures in ``found``."""
    targets: list[Target] = []
    for part, of_part in (
        (hosts.BENCHMARK, _of_hosts),
        (changes.BENCHMARK, _of_changes),
        (traffic.BENCHMARK, _of_traffic),
    ):
        if part.name in found:
            targets += of_part(found[part.name])
    return tuple(targets)


def _of_hosts(entry: dict[str, Any]) -> list[Target]:
    """Return the targets on the greatest measured number of hosts, compared with the smallest."""
    runs = entry["runs"]
    most, least = (pick(runs["large"], key=int) for pick in (max, min))
    pairs = {size: list(zip(some[most], some[least], strict=True)) for size, some in runs.items()}
    share = Figure.of(
        Spread.of(one["largest_share"] * int(most) for one in runs["large"][most]).rounded(4),
        len(runs["large"][most]),
        noise=SIZES,
    )
    pair = f"{most} hosts against {least}"
    cpu = Figure.median(a["cpu_ms"] / b["cpu_ms"] for a, b in pairs["large"])
    longer = Figure.median(a["batch_ms"] - b["batch_ms"] for a, b in pairs["small"])
    return [
        Target(
            f"{pair}: state of the largest host, of an equal share", share, 1.15, False, 2, " ×"
        ),
        Target(f"{pair}: CPU, same work, large batches", cpu, 1.4, False, 2, " ×"),
        Target(f"{pair}: a small batch takes longer by", longer, 150, False, 0, " ms"),
    ]


def _of_changes(entry: dict[str, Any]) -> list[Target]:
    """Return the targets on the time of batches after a host has joined or was lost."""
    return [
        Target(
            f"a host was {kind}: {name}",
            Figure.median(run[figure] for run in runs),
            most,
            False,
            2,
            " ×",
        )
        for kind, runs in entry["runs"].items()
        for figure, name, most in (
            ("first", "first batch", 2.0),
            ("dealt", "batch that assigns partitions to hosts again", 2.0),
            ("next", "next ten batches, median", 1.1),
        )
    ]


def _of_traffic(entry: dict[str, Any]) -> list[Target]:
    """Return the targets on bytes between hosts: predictions by edge, sums of joint plans."""
    shares = traffic.compared(entry)
    within = [
        Target(
            f"edges to {name} whose bytes are within 15 % of the prediction",
            Figure.counted(100 * shares[kind], 1),
            100,
            True,
            0,
            " %",
        )
        for kind, name in (("relations", "relations"), ("results", "intermediate results"))
    ]
    ratios = [one["joint"] / one["random"] for some in entry["plans"].values() for one in some]
    name = "bytes, over plans by random attributes, median of the problems"
    return [*within, Target(name, Figure.median(ratios), 0.6, False, 2, " ×")]


if __name__ == "__main__":
    sys.exit(main())

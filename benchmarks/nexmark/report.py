"""Writes ``docs/benchmarks-nexmark.md`` from saved figures.

``python -m benchmarks.nexmark report [--docs docs]`` reads ``docs/benchmarks/nexmark.jsonl``, one
line per run of one part, and shows the newest line of each part. Of costs, it combines all lines
with the settings of the newest one, so rounds may be run one by one. Equal lines give an equal
page, byte for byte.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.kinds import Kind
from benchmarks.nexmark import exact, together
from benchmarks.report.figures import Spread, docs_folder, newest, tell
from benchmarks.report.provenance import provenance
from benchmarks.report.sections import section
from benchmarks.report.targets import grid, paragraphs
from benchmarks.rivals import nexmark as rivals

_MEBI = 2**20
#: Decimal digits of pooled figures.
_DIGITS = 2
_INTRODUCTION = """\
# Nexmark

Made by `make bench-nexmark` (`python -m benchmarks.nexmark report`) from the newest lines in
[`benchmarks/nexmark.jsonl`](benchmarks/nexmark.jsonl). Change the benchmarks, not this file.

The events are made after Nexmark's published model: of 50 events 1 is a person, 3 are auctions and
46 are bids, half of them on a hot auction. All 24 queries are registered as statements of
[SQL](sql.md), with parts, views, windows, rankings and a table where the query has them.
"""

_KEPT = """\
*Kept for ever* are tuples whose partners may come at any time, as the registration notes. The
statements of q3, q20 and q23 have no bound of time. In q4, q6 and q9 auctions end by a column,
`expires`, which is not their event time. q5, q7 and q8 join windows, which are parts and have no
event times, so ended windows stay in the join's stores.
"""

_PUBLISHED = """\
## Published figures of engines in Rust

None of these engines was run here. Their makers compare them with Flink, one query at a time on
larger machines; there are no published figures of all join queries at once. So only ratios can
stand beside ours:

- [Feldera](https://feldera.com/blog/nexmark-vs-flink) (September 2024): up to 6.2 times Flink's
  throughput, with less CPU time in most queries; q0 to q22 without four, 100 million events, 64
  cores, 16 workers.
- [RisingWave][] 2.3: more throughput than Flink 1.18 in 22 of 27 queries, often 2 to 10 times as
  much; three nodes with 8 vCPUs each.
- [Arroyo](https://www.arroyo.dev/blog/how-arroyo-beats-flink-at-sliding-windows) (2023): 10 times
  as much in sliding windows.

They state throughput of a whole machine, and ours is CPU time per event on two cores. Where one
query runs alone, these ratios are better than ours: our pipeline pays for batches, service and
Redis then, and writes its state and results.

[RisingWave]: https://risingwave.com/blog/apache-flink-vs-risingwave-real-time-analytics-benchmark
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    docs = docs_folder("nexmark", arguments)
    found = newest(docs, "nexmark")
    if "exact" not in found:
        tell(f"{docs / 'benchmarks'} has no answers of Nexmark's queries")
        return 1
    parts = [_INTRODUCTION, *_exact(found["exact"])]
    if together.BENCHMARK.name in found:
        lines = _alike(docs, found[together.BENCHMARK.name])
        entry = pooled(lines)
        parts += section(
            docs, "At once", together.BENCHMARK, entry, {}, findings(entry, lines), lines
        )
    parts += [*_rivals(docs), _PUBLISHED]
    (docs / "benchmarks-nexmark.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def _saved(docs: Path) -> list[dict[str, Any]]:
    text = (docs / "benchmarks" / "nexmark.jsonl").read_text(encoding="utf-8")
    return [json.loads(one) for one in text.splitlines()]


def _alike(docs: Path, last: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the saved lines with the same part and settings as ``last``."""
    kind = last["part"], last["settings"]
    return [one for one in _saved(docs) if (one["part"], one["settings"]) == kind]


def _rivals(docs: Path) -> list[str]:
    """Return the section on other engines: by number of events, lines with the newest settings."""
    benchmark = rivals.BENCHMARK
    newest_of = {
        one["settings"]["events"]: one for one in _saved(docs) if one["part"] == benchmark.name
    }
    if not newest_of:
        return []
    lines = [_alike(docs, newest_of[events]) for events in sorted(newest_of)]
    entries = [pooled(alike) for alike in lines]
    parts = section(
        *(docs, "Beside Flink", benchmark, entries[0], {}),
        map(rivals.finding, entries),
        [one for alike in lines for one in alike],
    )
    for entry in entries[1:]:
        for shown in benchmark.tables(entry):
            parts += [f"*{shown.title}*\n", shown.markdown()]
    return [*parts, *paragraphs(grid(t for entry in entries for t in rivals.targets(entry)))]


def pooled(values: Sequence[Any]) -> Any:
    """Combine the figures of several lines: medians become the runs of a new median, other values
    are taken from the last line.

    >>> pooled([{"s": Spread.of([3]).rounded(0), "n": 1}, {"s": Spread.of([5]).rounded(0), "n": 2}])
    {'s': {'median': 4.0, 'low': 3, 'high': 5, 'runs': 2, 'interval': [3, 5]}, 'n': 2}
    """
    last = values[-1]
    if len(values) == 1 or not isinstance(last, dict):
        return last
    if "median" in last:
        return Spread.of(one["median"] for one in values).rounded(_DIGITS)
    return {name: pooled([one[name] for one in values if name in one]) for name in last}


def _exact(entry: dict[str, Any]) -> list[str]:
    about = inspect.getdoc(exact) or ""
    shown = about.replace(":class:`tests.support.combined.pipeline.Combined`", "`Combined`")
    parts = ["## Exactness\n", shown.replace("``", "`") + "\n", provenance(entry)]
    for one in exact.tables(entry):
        parts += [f"*{one.title}*\n", one.markdown()]
    return [*parts, _KEPT]


def findings(entry: dict[str, Any], lines: Sequence[dict[str, Any]]) -> list[str]:
    """Return the result in words; nothing without figures of single queries.

    Args:
        entry: the pooled figures.
        lines: the pooled lines.
    """
    if not entry["singles"]:
        return []
    ratio, count = entry["times"]["median"], len(entry["joins"])
    rounds = [_tasks(line, number) for line in lines for number in range(line["settings"]["runs"])]
    alone, joint = (median(side) for side in zip(*rounds, strict=True))
    stored = sum(entry["singles"][name]["state_bytes"]["median"] for name in entry["joins"])
    return [
        f"*Result.* {count} join queries in one pipeline took"
        f" {entry['together']['cpu_seconds']['median']:.1f} s of CPU, in a pipeline each"
        f" {entry['sum_of_singles']['median']:.1f} s: {ratio:.1f} times as much. Tasks and views"
        f" alone took {joint:.1f} s at once and {alone:.1f} s one by one, {alone / joint:.1f} times"
        " as much; the rest is spent per batch and pipeline, by driver, service and Redis. State is"
        f" {entry['together']['state_bytes']['median'] / _MEBI:.0f} MiB at once and"
        f" {stored / _MEBI:.0f} MiB one by one. DuckDB took"
        f" {entry['duckdb_cpu_seconds']['median']:.1f} s for one run of each query over the whole"
        " input, without batches, files and state."
    ]


def _tasks(line: dict[str, Any], number: int) -> tuple[float, float]:
    """Return CPU seconds of tasks and views in a round: of all single joins, and together."""
    runs = line["runs"]
    kind = str(Kind.WORKERS)
    alone = sum(runs[name][number]["cpu_by_kind"][kind] for name in line["joins"])
    return alone, runs["together"][number]["cpu_by_kind"][kind]

"""Writes ``docs/benchmarks.md`` from saved figures: ``python -m benchmarks.report [--docs docs]``.

Reads ``docs/benchmarks/{throughput,planner}.jsonl``, one line per invocation of a benchmark, in the
order in which they were made. The newest line of ``throughput`` is shown in full, the others in a
history; of ``planner``, the newest line of each part is shown. Equal lines give an equal page, byte
for byte.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report.charts import Row, stacked
from benchmarks.report.figures import ROOT, tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as _spread
from benchmarks.report.planner import planner_section
from benchmarks.report.provenance import commit_of, provenance

_MEBI = 2**20
_INTRODUCTION = """\
# Benchmarks

Made by `make bench` (`python -m benchmarks.report`) from the lines in
[`throughput.jsonl`](benchmarks/throughput.jsonl) and [`planner.jsonl`](benchmarks/planner.jsonl).
Change the benchmarks, not this file.

Figures are medians over interleaved runs, with their range in brackets. The figures of a table were
measured in one run, so compare within tables: absolute figures depend on the machine and on its
other load as well. Results of joins are compared with the oracle's in every run; a run with other
results reports nothing.
"""
_THROUGHPUT = """\
## Throughput

Five joins of four relations each over TPC-H at scale {scale:g} (the demo's queries, all of them
from the start): {tuples} input tuples in random order, joined over their full history, nothing
loaded beforehand. The relations are from the CLASH paper's five queries (Figure 7a), joined by
foreign keys. The paper does not print its join columns; its text mixes foreign keys with
type-compatible columns. Queries drawn as in that text are planned below ("Random queries over
TPC-H"). Everything runs as in use: Redis, service and Spark (`local[{tasks}]`) as processes.
Each batch's results are in files and its state is durable before the next begins.

*Sustained* throughput is over the batches after the first, from the first commit to the last, all
other work of the time included. In step mode (replays) the pipeline waits for the planner whenever
an epoch begins; in live mode it does not. *Without entering* leaves out the time at the beginning
of epochs: in step mode mostly this wait. DuckDB answers the same queries with the same number of
threads in one batch, with all input present: a lower bound of the time. CPU seconds are
summed over all processes and batches; *others'* are the CPU seconds of other processes in the same
time. Peak memory is the sum over processes; a page mapped by several processes counts for each.
"""
_PHASES = """\
### Where the time goes

Seconds of the batches after the first. `read` to `write` are phases of each batch's slowest task;
`wait` is waiting for other tasks, `spark` the rest of the job; `enter` is the beginning of an
epoch, `commit` the publication of results and manifest, `between` the time from a commit to the
next batch.
"""


class NoFiguresError(Exception):
    """There are no saved figures to report."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    parser = argparse.ArgumentParser(description="docs/benchmarks.md from saved figures")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the report")
    docs = parser.parse_args(arguments).docs
    try:
        write_report(docs)
    except NoFiguresError as error:
        tell(str(error))
        return 1
    return 0


def write_report(docs: Path) -> None:
    """Write ``benchmarks.md`` and its charts below ``docs``.

    Raises:
        NoFiguresError: there is no saved line.
    """
    figures = docs / "benchmarks"
    throughput, planner = (_lines(figures, n) for n in ("throughput", "planner"))
    parts = [_INTRODUCTION]
    if throughput:
        parts += _throughput(throughput)
        (figures / "phases.svg").write_text(_phases_chart(throughput[-1]), encoding="utf-8")
    if planner:
        parts += planner_section(planner, figures)
    if len(parts) == 1:
        raise NoFiguresError(f"{figures} has no figures: run make bench")
    (docs / "benchmarks.md").write_text("\n".join(parts), encoding="utf-8")


def _lines(figures: Path, benchmark: str) -> list[dict[str, Any]]:
    """Return the lines of ``benchmark``; other lines in its file (profiles) are left out."""
    path = figures / f"{benchmark}.jsonl"
    if not path.is_file():
        return []
    texts = path.read_text(encoding="utf-8").splitlines()
    return [one for text in texts if (one := json.loads(text))["benchmark"] == benchmark]


# --- throughput --------------------------------------------------------------------------------


def _throughput(lines: Sequence[dict[str, Any]]) -> list[str]:
    newest = lines[-1]
    settings, bound = newest["settings"], newest["duckdb"]
    found = [
        _THROUGHPUT.format(
            scale=settings["scale"],
            tuples=f"{newest['input_tuples']:,}",
            tasks=settings["tasks"],
        ),
        provenance(newest),
        _grid(
            (
                *("", "tuples per batch", "sustained tuples/s", "without entering"),
                *("times DuckDB's time", "CPU s", "times DuckDB's CPU", "others' CPU s"),
                *("peak memory MiB", "state MiB"),
            ),
            [
                (
                    "DuckDB, one batch",
                    f"{newest['input_tuples']:,}",
                    _spread(bound["tuples_per_s"]),
                    *("", "1", _spread(bound["cpu_seconds"], 1), "1", ""),
                    _spread(bound["peak_rss_bytes"], unit=_MEBI),
                    "",
                ),
                *map(_configuration, newest["configurations"]),
            ],
        ),
        "Results: "
        + ", ".join(f"{name} {count:,}" for name, count in newest["results"].items())
        + "; row by row the oracle's.\n",
        _PHASES,
        "![seconds by phase](benchmarks/phases.svg)\n",
        _phases_table(newest["configurations"]),
    ]
    if len(lines) > 1:
        found += ["### History\n", _history(lines)]
    return found


def _configuration(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["name"],
        f"{one['tuples_per_batch']:,}",
        _spread(one["tuples_per_s"]),
        _spread(one["tuples_per_s_without_enter"]),
        _spread(one["times_duckdb_seconds"], 1),
        _spread(one["cpu_seconds"], 1),
        _spread(one["times_duckdb_cpu"], 1),
        _spread(one["other_cpu_seconds"], 1),
        _spread(one["peak_rss_bytes"], unit=_MEBI),
        _spread(one["state_bytes"], unit=_MEBI),
    )


def _phases_table(configurations: Sequence[dict[str, Any]]) -> str:
    names = list(configurations[0]["phases"])
    return _grid(
        ("", "all", *names),
        [
            (
                one["name"],
                f"{one['seconds']['median']:.2f}",
                *(f"{one['phases'][name]['median']:.2f}" for name in names),
            )
            for one in configurations
        ],
    )


def _phases_chart(newest: dict[str, Any]) -> str:
    configurations = newest["configurations"]
    names = list(configurations[0]["phases"])
    return stacked(
        "Seconds of the batches after the first, by phase (medians)",
        names,
        [
            Row(
                one["name"],
                tuple(one["phases"][name]["median"] for name in names),
                f"{one['tuples_per_s']['median']:,.0f} tuples/s",
            )
            for one in configurations
        ],
    )


def _history(lines: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            entry["at"][:10],
            commit_of(entry),
            f"{entry['settings']['scale']:g}",
            one["name"],
            str(entry["settings"]["runs"]),
            _spread(one["tuples_per_s"]),
            _spread(one["times_duckdb_seconds"], 1),
            _spread(one["cpu_seconds"], 1),
        )
        for entry in lines
        for one in entry["configurations"]
    ]
    head = ("day", "commit", "scale", "", "runs", "tuples/s", "times DuckDB's time", "CPU s")
    return _grid(head, rows)


def _grid(head: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    return Grid("", tuple(head), tuple(rows)).markdown()


if __name__ == "__main__":
    sys.exit(main())

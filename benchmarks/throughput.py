"""Throughput: five TPC-H joins over shared streams, through the real service and runtime.

``python -m benchmarks.throughput [--json] [--scale 0.1] [--batches 8 4] [--runs 3]``

The input is the demo's: seven tables, shuffled, nothing loaded beforehand, all joins over the full
history. Every round runs DuckDB's single batch (the lower bound) and then each configuration once,
so that disturbances of the machine affect all of them. ``--profile`` profiles the worker instead.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from anabranch_client.replay import tpch
from anabranch_client.replay.scenario import RecordedStream
from benchmarks import duckdb_batch
from benchmarks.duckdb_batch import Batch
from benchmarks.profiled import profile_worker
from benchmarks.report.figures import Spread, document, line, show, tell
from benchmarks.session import WrongResultError
from benchmarks.system_run import PHASES, Configuration, SystemRun, run_system

_MEBI = 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    options = _options(arguments)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        try:
            found = (
                _profile(options, Path(folder)) if options.profile else _measure(options, folder)
            )
        except WrongResultError as error:
            tell(f"wrong results, so no figures: {error}")
            return 1
    found = (
        document("profile" if options.profile else "throughput", _settings(options), load) | found
    )
    if options.json:
        sys.stdout.write(line(found) + "\n")
    else:
        show(_profile_tables(found) if options.profile else _tables(found))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="throughput of five TPC-H joins")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 4], metavar="N")
    parser.add_argument("--modes", nargs="+", choices=["step", "live"], default=["live", "step"])
    parser.add_argument("--runs", type=int, default=3, help="rounds")
    parser.add_argument("--tasks", type=int, default=os.cpu_count(), help="Spark's and DuckDB's")
    parser.add_argument("--parallelism", type=int, default=1, help="partitions per store")
    parser.add_argument(
        "--epoch-batches", type=int, default=None, help="batches per epoch; a quarter of them"
    )
    parser.add_argument("--profile", action="store_true", help="profile the worker, one task")
    parser.add_argument("--top", type=int, default=40, help="functions that --profile lists")
    options = parser.parse_args(arguments)
    if min(options.batches) < 2:
        parser.error("--batches: the first batch is the warm-up, so at least 2 are needed")
    if options.runs < 1:
        parser.error("--runs: at least 1 is needed")
    return options


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        name: getattr(options, name)
        for name in ("scale", "batches", "modes", "runs", "tasks", "parallelism", "epoch_batches")
    }


def _configurations(options: argparse.Namespace) -> list[Configuration]:
    return [
        Configuration(mode, batches, options.epoch_batches or max(batches // 4, 1))
        for batches in options.batches
        for mode in options.modes
    ]


# --- measuring ---------------------------------------------------------------------------------


def _measure(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    home = Path(folder)
    configurations = _configurations(options)
    inputs = {
        batches: tpch.generate(_made(home / f"input-{batches}"), options.scale, batches)
        for batches in options.batches
    }
    # The rows do not depend on the number of batches.
    tables = home / f"input-{options.batches[0]}"
    rows = sum(stream.rows for stream in inputs[options.batches[0]])
    bounds: list[Batch] = []
    runs: list[SystemRun] = []
    for number in range(options.runs):
        bound = duckdb_batch.run(tables, home / "duckdb", options.tasks)
        shutil.rmtree(home / "duckdb")
        bounds.append(bound)
        tell(f"round {number + 1}: DuckDB, one batch: {rows / bound.seconds:,.0f} tuples/s")
        for one in configurations:
            run = _one_run(one, inputs[one.batches], home / "run", options)
            if run.results != bounds[-1].results:
                raise WrongResultError(f"{run.results}, DuckDB's batch {bounds[-1].results}")
            runs.append(run)
            tell(f"round {number + 1}: {one.name}: {run.rate:,.0f} tuples/s")
    return {
        "input_tuples": rows,
        "results": bounds[-1].results,
        "duckdb": _duckdb_summary(rows, bounds),
        "configurations": [
            _summary(one, [r for r in runs if r.configuration == one], rows, bounds)
            for one in configurations
        ],
        "runs": [run.to_json() for run in runs],
    }


def _one_run(
    configuration: Configuration,
    streams: Sequence[RecordedStream],
    home: Path,
    options: argparse.Namespace,
) -> SystemRun:
    try:
        return run_system(
            configuration,
            streams,
            home,
            master=f"local[{options.tasks}]",
            parallelism=options.parallelism,
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _duckdb_summary(rows: int, bounds: Sequence[Batch]) -> dict[str, Any]:
    return {
        "tuples_per_s": _spread(rows / b.seconds for b in bounds),
        "seconds": _spread((b.seconds for b in bounds), 4),
        "cpu_seconds": _spread((b.cpu_seconds for b in bounds), 3),
        "peak_rss_bytes": _spread(b.peak_rss_bytes for b in bounds),
    }


def _summary(
    configuration: Configuration, runs: Sequence[SystemRun], rows: int, bounds: Sequence[Batch]
) -> dict[str, Any]:
    """Return medians and ranges of a configuration; ratios are computed within a round."""
    pairs = list(zip(runs, bounds, strict=True))
    return {
        "name": configuration.name,
        **asdict(configuration),
        "tuples_per_batch": round(rows / configuration.batches),
        "tuples_per_s": _spread(r.rate for r in runs),
        "tuples_per_s_without_enter": _spread(r.rate_without_enter for r in runs),
        "all_batches_tuples_per_s": _spread(r.total_tuples / r.total_seconds for r in runs),
        "times_duckdb_seconds": _spread((rows / b.seconds / r.rate for r, b in pairs), 2),
        "times_duckdb_cpu": _spread((r.cpu_seconds / b.cpu_seconds for r, b in pairs), 2),
        "cpu_seconds": _spread((r.cpu_seconds for r in runs), 2),
        "other_cpu_seconds": _spread((r.other_cpu_seconds for r in runs), 2),
        "peak_rss_bytes": _spread(r.peak_rss_bytes for r in runs),
        "state_bytes": _spread(r.state_bytes for r in runs),
        "seconds": _spread((r.seconds for r in runs), 3),
        "phases": {name: _spread((r.phases[name] for r in runs), 3) for name in PHASES},
    }


def _spread(figures: Iterable[float], digits: int = 0) -> dict[str, float]:
    return Spread.of(figures).rounded(digits)


def _profile(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    batches = options.batches[0]
    streams = tpch.generate(_made(home / "input"), options.scale, batches)
    found = profile_worker(
        streams,
        home / "run",
        epoch_batches=options.epoch_batches or max(batches // 4, 1),
        parallelism=options.parallelism,
        top=options.top,
    )
    return {
        "input_tuples": sum(stream.rows for stream in streams),
        "results": found.results,
        "seconds": round(found.seconds, 3),
        "phases": {name: round(seconds, 3) for name, seconds in found.phases.items()},
        "functions": [function.to_json() for function in found.functions],
    }


# --- for people --------------------------------------------------------------------------------


def _tables(found: dict[str, Any]) -> list[Table]:
    counts = " / ".join(f"{n:,}" for n in found["results"].values())
    title = f"{found['input_tuples']:,} input tuples; results {counts}, equal to the oracle's"
    rates = Table(title=title)
    for column in (
        *("", "tuples/s", "range", "without entering", "x DuckDB", "CPU s", "others' CPU s"),
        *("peak MiB", "state MiB"),
    ):
        rates.add_column(column, justify="right" if column else "left")
    bound = found["duckdb"]
    rates.add_row(
        "DuckDB, one batch",
        _median(bound["tuples_per_s"]),
        _range(bound["tuples_per_s"]),
        *("", "1.0", f"{bound['cpu_seconds']['median']:.1f}", ""),
        _median(bound["peak_rss_bytes"], _MEBI),
        "",
    )
    times = Table(title="seconds of the batches after the first, by phase (medians)")
    for column in ("", "all", *PHASES):
        times.add_column(column, justify="right" if column else "left")
    for one in found["configurations"]:
        rates.add_row(
            one["name"],
            _median(one["tuples_per_s"]),
            _range(one["tuples_per_s"]),
            _median(one["tuples_per_s_without_enter"]),
            f"{one['times_duckdb_seconds']['median']:.1f}",
            f"{one['cpu_seconds']['median']:.1f}",
            f"{one['other_cpu_seconds']['median']:.1f}",
            _median(one["peak_rss_bytes"], _MEBI),
            _median(one["state_bytes"], _MEBI),
        )
        times.add_row(
            one["name"],
            f"{one['seconds']['median']:.2f}",
            *(f"{one['phases'][name]['median']:.2f}" for name in PHASES),
        )
    return [rates, times]


def _profile_tables(found: dict[str, Any]) -> list[Table]:
    table = Table(title=f"the worker, one task, under cProfile: {found['seconds']:.1f} s")
    for column in ("own s", "with callees", "calls", "function"):
        table.add_column(column, justify="left" if column == "function" else "right")
    for one in found["functions"]:
        table.add_row(
            f"{one['own']:.3f}", f"{one['total']:.3f}", f"{one['calls']:,}", str(one["name"])
        )
    return [table]


def _median(spread: dict[str, float], unit: int = 1) -> str:
    return f"{spread['median'] / unit:,.0f}"


def _range(spread: dict[str, float]) -> str:
    return f"{spread['low']:,.0f}–{spread['high']:,.0f}"


if __name__ == "__main__":
    sys.exit(main())

"""``docs/benchmarks-sql.md`` from saved figures.

``python -m benchmarks.sql.report [--docs docs]`` reads ``docs/benchmarks/sql.jsonl``, one line per
run, and shows the newest of each number of rows. Equal lines give equal bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from benchmarks.report.figures import docs_folder, tell
from benchmarks.report.sections import section
from benchmarks.report.targets import Figure, Target, grid, paragraphs
from benchmarks.sql import filters

_INTRODUCTION = """\
# Benchmarks of SQL

Made by `make bench-sql` (`python -m benchmarks.sql.report`) from the lines in
[`benchmarks/sql.jsonl`](benchmarks/sql.jsonl), the newest of each number of rows. Change the
benchmarks, not this file. The statements that run are counted in
[SQL](sql.md#statements-of-the-tests).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    docs = docs_folder("sql", arguments)
    saved = docs / "benchmarks" / "sql.jsonl"
    found: dict[int, dict[str, Any]] = {}
    for line in saved.read_text(encoding="utf-8").splitlines() if saved.is_file() else ():
        entry = json.loads(line)
        found[entry["settings"]["rows"]] = entry
    runs = [entry for _, entry in sorted(found.items(), reverse=True)]
    if not runs:
        tell(f"{docs / 'benchmarks'} has no figures of SQL")
        return 1
    parts = [
        _INTRODUCTION,
        "## Targets\n",
        *paragraphs(grid(chain.from_iterable(map(targets, runs)))),
    ]
    grids = [one for entry in runs for one in filters.tables(entry)]
    shown = replace(filters.BENCHMARK, tables=lambda _: grids)
    parts += section(docs, "Filters with functions", shown, runs[0], {}, runs=runs)
    (docs / "benchmarks-sql.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def targets(found: dict[str, Any]) -> Iterator[Target]:
    """The ratio of every filter."""
    for one in found["filters"]:
        figure = Figure.of(one["ratio"], found["settings"]["rounds"])
        rows = found["settings"]["rows"]
        what = f"CPU time of the filter *{one['filter']}* over DuckDB's, {rows:,} rows"
        yield Target(what, figure, filters.MOST, False, 2, " ×")


if __name__ == "__main__":
    sys.exit(main())

"""``docs/benchmarks-sql.md`` from saved figures.

``python -m benchmarks.sql.report [--docs docs]`` reads ``docs/benchmarks/sql.jsonl``, one line per
run, and shows the newest. Equal lines give equal bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.report.figures import docs_folder, newest, tell
from benchmarks.report.sections import section
from benchmarks.report.targets import Figure, Target, grid, paragraphs
from benchmarks.sql import filters

_INTRODUCTION = """\
# Benchmarks of SQL

Made by `make bench-sql` (`python -m benchmarks.sql.report`) from the newest line in
[`benchmarks/sql.jsonl`](benchmarks/sql.jsonl). Change the benchmarks, not this file. The statements
that run are counted in [SQL](sql.md#statements-of-the-tests).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    docs = docs_folder("sql", arguments)
    found = newest(docs, "sql").get(filters.BENCHMARK.name)
    if found is None:
        tell(f"{docs / 'benchmarks'} has no figures of SQL")
        return 1
    parts = [_INTRODUCTION, "## Targets\n", *paragraphs(grid(targets(found)))]
    parts += section(docs, "Filters with functions", filters.BENCHMARK, found, {})
    (docs / "benchmarks-sql.md").write_text("\n".join(parts), encoding="utf-8")
    return 0


def targets(found: dict[str, Any]) -> Iterator[Target]:
    """The ratio of every filter."""
    for one in found["filters"]:
        figure = Figure.of(one["ratio"], found["settings"]["rounds"])
        what = f"time of the filter *{one['filter']}* over DuckDB's"
        yield Target(what, figure, filters.MOST, False, 2, " ×")


if __name__ == "__main__":
    sys.exit(main())

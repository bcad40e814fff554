"""The program that runs in Pathway's environment: trees of joins over CSV files.

``python joins.py JOB``, a JSON file with

- ``tables``: table -> folder of its files, and column -> ``int``, ``float`` or ``str``;
- ``queries``: query -> its columns, and its steps: a table, and pairs of a column of the steps
  before and one of the table;
- ``rows``: query -> number of results;
- ``answers``: a folder for CSV files of the changes of each query, or null.

Queries with the same first steps share their joins. With ``answers`` Pathway reads all files as
one batch; without, it commits read rows every :data:`COMMIT` milliseconds, drops results, and the
process ends when every query has all of its results. Prints ``used`` and CPU seconds, seconds
since the program's start, and the greatest resident memory in bytes.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

#: Milliseconds between commits of read rows.
COMMIT = 10
_TYPES = {"int": int, "float": float, "str": str}


def _joined(pw: Any, job: dict[str, Any], mode: str) -> dict[str, Any]:
    """Return query -> its joined rows, as a Pathway table."""
    tables = {
        name: pw.io.csv.read(
            folder,
            schema=pw.schema_from_types(**{c: _TYPES[kind] for c, kind in columns.items()}),
            mode=mode,
            autocommit_duration_ms=COMMIT,
        )
        for name, (folder, columns) in job["tables"].items()
    }
    needed: dict[str, set[str]] = {}
    for query in job["queries"].values():
        for length in range(1, len(query["steps"]) + 1):
            later = (pair for _, pairs in query["steps"][length:] for pair in pairs)
            found = needed.setdefault(json.dumps(query["steps"][:length]), set())
            found.update(query["columns"], (before for before, _ in later))
    made: dict[str, Any] = {}

    def tree(steps: list[Any]) -> Any:
        name = json.dumps(steps)
        if name not in made:
            table, pairs = steps[-1]
            made[name] = tables[table]
            if len(steps) > 1:
                left, right = tree(steps[:-1]), tables[table]
                both = left.join(right, *(left[one] == right[other] for one, other in pairs))
                sides = {c: side[c] for side in (right, left) for c in side.column_names()}
                kept = {c: column for c, column in sides.items() if c in needed[name]}
                made[name] = both.select(**kept)
        return made[name]

    return {
        name: tree(query["steps"]).select(*(pw.this[c] for c in query["columns"]))
        for name, query in job["queries"].items()
    }


def _report(began: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, seconds = used.ru_utime + used.ru_stime, time.monotonic() - began
    # The system reports kilobytes, except macOS, which reports bytes.
    peak = used.ru_maxrss if sys.platform == "darwin" else used.ru_maxrss * 1024
    sys.stdout.write(f"used\t{cpu} {seconds} {peak}\n")
    sys.stdout.flush()


def main() -> None:
    """Run the job that the first argument names."""
    began = time.monotonic()
    # Imported here, since only Pathway's environment has it, while doctests import this module.
    pw = importlib.import_module("pathway")
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers, counts = job["answers"], dict[str, int]()
    found = _joined(pw, job, "static" if answers else "streaming")

    def counted(name: str) -> Any:
        def changed(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
            if is_addition:
                counts[name] = row["rows"]
                if counts == job["rows"]:
                    _report(began)
                    os._exit(0)

        return changed

    for name, rows in found.items():
        if answers:
            pw.io.csv.write(rows, f"{answers}/{name}.csv")
        else:
            pw.io.null.write(rows)
            pw.io.subscribe(rows.reduce(rows=pw.reducers.count()), counted(name))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    _report(began)


if __name__ == "__main__":
    main()

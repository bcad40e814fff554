"""Joins in Pathway: the files of a job, and the process that runs it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.rivals.environment import Environment, RivalError, Spent, file_parts, output

ENVIRONMENT = Environment("pathway")
_PROGRAM = Path(__file__).with_name("joins.py")

#: A step of a join tree: a table, and pairs of columns (one of earlier steps, one of the table).
Step = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Tree:
    """A query as a left-deep tree of joins.

    Attributes:
        columns: columns of the results.
        steps: the joined tables, in order.
    """

    columns: tuple[str, ...]
    steps: tuple[Step, ...]


def write_input(streams: Mapping[str, pa.Table], folder: Path, *, files: int, used: int) -> None:
    """Write each stream as CSV files of equal length; arguments as for :func:`file_parts`."""
    for path, part in file_parts(streams, folder, files=files, used=used):
        duckdb.from_arrow(part).write_csv(str(path.with_suffix(".csv")), header=True)


def run(
    streams: Mapping[str, pa.Table],
    queries: Mapping[str, Tree],
    rows: Mapping[str, int],
    folder: Path,
    answers: Path | None = None,
) -> Spent:
    """Run all queries over the files below ``folder`` in a new process; returns its resource usage.

    Args:
        streams: stream -> rows with its columns.
        queries: query -> its join tree.
        rows: query -> expected number of results, after which the process ends.
        folder: the folder of :func:`write_input`.
        answers: folder for the changes of each query (``QUERY.csv``).

    Raises:
        RivalError: the process failed.
    """
    job = {
        "tables": {
            name: (str(folder / name), {f.name: _kind(f.type) for f in table.schema})
            for name, table in streams.items()
        },
        "queries": {name: asdict(tree) for name, tree in queries.items()},
        # A query with an empty result has no count, which Pathway would never reach.
        "rows": {name: count for name, count in rows.items() if count},
        "answers": str(answers) if answers else None,
    }
    path = folder / "job.json"
    path.write_text(json.dumps(job), encoding="utf-8")
    python = str(ENVIRONMENT.folder / "bin" / "python")
    return _usage(output([python, str(_PROGRAM), str(path)], folder))


def _kind(kind: pa.DataType) -> str:
    """Return Pathway's name of a column's type."""
    if pa.types.is_floating(kind):
        return "float"
    return "int" if pa.types.is_integer(kind) else "str"


def _usage(printed: str) -> Spent:
    marks: Sequence[str] = [one for one in printed.splitlines() if one.startswith("used\t")]
    if not marks:
        raise RivalError(f"Pathway printed no CPU time:\n{printed}")
    return Spent.read(marks[-1].partition("\t")[2])

"""Run examples, each in a temporary pipeline, and compare their results with DuckDB's.

Data, results and the state of ``anabranch up`` are in a temporary folder. Streams and queries are
registered, and the data arrive in several files. When every query's result equals DuckDB's, the
first rows of each are printed and the pipeline is stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import duckdb
import httpx

from anabranch_client.processes.children import free_port
from anabranch_client.rest.api import Client
from examples.example import NAMES, SLICES, Example, connect, current

#: Maximum seconds until every query is active, and until every result equals DuckDB's.
PATIENCE: Final = 180.0
#: Number of printed rows per result.
SHOWN: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the examples that the command line names, by default all; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    names = parser.parse_args(arguments).names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"no example {', '.join(sorted(unknown))}: choose from {', '.join(NAMES)}")
    examples = [Example.read(name) for name in names]
    with tempfile.TemporaryDirectory(prefix="anabranch-examples-") as temporary:
        folder = Path(temporary)
        with pipeline(folder) as url, Client(url) as client, connect() as duck:
            start(examples, folder / "data", client)
            for part in range(SLICES):
                for example in examples:
                    example.write(folder / "data", part)
                time.sleep(0.5)
            read(examples, client)
            for example in examples:
                example.fill(duck)
                sys.stdout.write("\n".join(answers(example, client, duck)) + "\n")
    return 0


@contextmanager
def pipeline(folder: Path) -> Iterator[str]:
    """Context with a pipeline in ``folder``; yields the URL of its service."""
    port = free_port()
    command = [sys.executable, "-m", "anabranch_client"]
    up = [*command, "up", "--wait", "--dir", str(folder / "up"), "--port", str(port)]
    down = [*command, "down", "--dir", str(folder / "up")]
    try:
        subprocess.run(up, cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)
        yield f"http://127.0.0.1:{port}"
    finally:
        subprocess.run(down, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)


def start(examples: Sequence[Example], data: Path, client: Client) -> None:
    """Register streams and queries, and wait until the queries are active."""
    for example in examples:
        for body in example.bodies(data):
            Path(body["source"]["path"]).mkdir(parents=True)
            # The answer need not wait for the first read of the source.
            answer = httpx.post(f"{client.base_url}/v1/streams?wait=0", json=body)
            answer.raise_for_status()
        example.write_tables(data)
    statements = {name: sql for example in examples for name, sql in example.queries.items()}
    sink = {"format": "parquet"}
    client.create_queries([{"id": n, "sql": sql, "sink": sink} for n, sql in statements.items()])
    wait(
        "active queries",
        lambda: all(client.query(name).status == "active" for name in statements),
    )


def read(examples: Sequence[Example], client: Client) -> None:
    """Wait until all rows of the examples have been read."""
    for example in examples:
        for name, data in example.tables.items():
            wait(f"{data.num_rows} rows of {name}", partial(_read, client, name, data.num_rows))


def _read(client: Client, stream: str, count: int) -> bool:
    return client.stream(stream).input_tuples == count


def answers(example: Example, client: Client, duck: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Return a line for each query with the number of rows of its result, and lines with the first
    rows.

    Raises:
        TimeoutError: a result differs from DuckDB's.
    """
    for name, oracle in example.oracle.items():
        wanted = rows(duck, oracle)
        query = client.query(name)
        view = query.normalised.view
        identity = None if view is None else view.identity
        answer = current(
            Path(str(query.results_at)), [one.name for one in query.normalised.output], identity
        )
        wait(f"{len(wanted)} rows of {name}", partial(equal, duck, answer, wanted))
        yield f"{name}: {len(wanted)} rows"
        yield from (f"  {', '.join(row)}" for row in wanted[:SHOWN])


def equal(duck: duckdb.DuckDBPyConnection, answer: str, wanted: list[tuple[str, ...]]) -> bool:
    """Whether the present rows of a query's result are ``wanted``."""
    try:
        return rows(duck, answer) == wanted
    except duckdb.IOException:
        # The query has no result file yet.
        return False


def rows(duck: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[str, ...]]:
    """Return the rows of a statement as texts, sorted."""
    return sorted(tuple(map(str, row)) for row in duck.execute(sql).fetchall())


def wait(what: str, ready: Callable[[], bool]) -> None:
    """Wait until ``ready()`` is true.

    Raises:
        TimeoutError: it is not true within :data:`PATIENCE` seconds.
    """
    end = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} in {PATIENCE:.0f} seconds")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())

"""Scenarios of three streams joined by one key, whose values the caller draws."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

NAMES = "rst"
BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_NEAR = "BETWEEN r.ts - INTERVAL '2' MINUTE AND r.ts + INTERVAL '2' MINUTE"
_QUERIES = {
    "pair": f"SELECT r.n, s.n AS m FROM r JOIN s ON r.k = s.k AND s.ts {_NEAR}",
    "three": f"SELECT r.n, s.n AS m, t.n AS o FROM r JOIN s ON r.k = s.k AND s.ts {_NEAR} "
    f"JOIN t ON r.k = t.k AND t.ts {_NEAR}",
}


def write(
    folder: Path,
    key: Callable[[int, Random], int],
    *,
    batches: int,
    rows: int,
    every: int,
    parallelism: int,
    sites: Mapping[str, str] | None = None,
) -> Path:
    """Write a scenario of two queries; return its file.

    Args:
        folder: folder to create.
        key: function that draws a row's key, given the number of its stream.
        rows: rows of each stream per batch, which has a minute of event time.
        every: batches per epoch.
        sites: stream -> its site.
    """
    folder.mkdir()
    streams = {}
    for number, name in enumerate(NAMES):
        rng, count = Random(number), batches * rows
        times = [BEGIN + dt.timedelta(seconds=60 * at / rows) for at in range(count)]
        table = pa.table(
            {
                "n": range(count),
                "k": [key(number, rng) for _ in range(count)],
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, folder / f"{name}.parquet")
        streams[name] = {
            "path": f"{name}.parquet",
            "rows_per_batch": rows,
            "event_time": "ts",
            "lateness": "1 second",
            "site": (sites or {}).get(name, ""),
        }
    scenario = folder / "scenario.yaml"
    queries = {name: {"sql": sql} for name, sql in _QUERIES.items()}
    document = {"streams": streams, "queries": queries, "parallelism": parallelism}
    # With the objective in seconds, plans of so few rows have no intermediate results.
    document["objective"] = "tuples"
    scenario.write_text(json.dumps({**document, "epochs": {"every": every}}))
    return scenario

"""Scenarios with many queries over three streams: they share stores and keys, and differ in
filters, windows, and when they come and go. Keys are integers; tuples come out of order, some late.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.support.oracles.oracle import from_spark
from tests.support.scenarios.draw import Generated

#: Batches, rows of a stream in each, values of a key, values of the column that is filtered by.
BATCHES, ROWS, KEYS, VALUES = 8, 14, 9, 10
_STREAMS = ("r", "s", "t")
_COLUMNS = ("a", "b", "v", "id", "ts")


def generate_crowded(
    seed: int, folder: Path, count: int, every: int = 2, alike: int = 0
) -> Generated:
    """Write the scenario of ``seed`` with ``count`` queries and epochs of ``every`` batches; equal
    arguments give equal scenarios. ``alike``: further queries that join like one of these.
    """
    rng, drawn = np.random.default_rng(seed), Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    streams = {name: _stream(name, folder, rng) for name in _STREAMS}
    queries = {f"q{number:03}": _query(drawn) for number in range(count)}
    heads = [one for one in queries.values() if not one["register_at"]]
    queries |= {f"q{count + n:03}": _alike(drawn.choice(heads), drawn) for n in range(alike)}
    document = {
        "streams": streams,
        "queries": queries,
        "epochs": {"every": every},
        # With hundreds of queries the optimiser of joint plans takes minutes.
        "optimizer": "shared" if count > 20 else {0: "clash", 4: "shared"},
        # In seconds, plans of so few rows keep no intermediate results.
        "objective": "tuples",
        "parallelism": drawn.randint(1, 3),
    }
    (folder / "SCENARIO.yaml").write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    columns = dict.fromkeys(_STREAMS, _COLUMNS)
    return Generated(folder, {n: from_spark(q["sql"], columns) for n, q in queries.items()})


def _stream(name: str, folder: Path, rng: np.random.Generator) -> dict[str, Any]:
    rows = BATCHES * ROWS
    jitter = rng.integers(-90, 90, rows)
    moments = np.datetime64("2024-03-01", "us") + (np.arange(rows) * 10 + jitter).astype(
        "timedelta64[s]"
    )
    table = {
        "a": pa.array(rng.integers(0, KEYS, rows), rng.choice([pa.int64(), pa.int32(), pa.int8()])),
        "b": pa.array(rng.integers(0, KEYS, rows)),
        "v": pa.array(rng.integers(0, VALUES, rows), pa.int32()),
        "id": pa.array(np.arange(rows)),
        "ts": pa.array(moments, pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")),
    }
    pq.write_table(pa.table(table), folder / f"{name}.parquet")
    # Bursts and gaps: a batch may bring nothing.
    cuts = np.sort(rng.integers(0, rows, BATCHES - 1)).tolist()
    return {
        "path": f"{name}.parquet",
        "event_time": "ts",
        "lateness": "1 minute",
        "rows_per_batch": ROWS,
        "cuts": [*cuts, rows],
    }


def _query(drawn: Random) -> dict[str, Any]:
    members = drawn.choice([["r", "s"], ["s", "t"], ["r", "s", "t"], ["r", "t", "r"], ["s", "s"]])
    aliases = [f"x{at}" for at in range(len(members))]
    joins = [f"FROM {members[0]} x0"]
    for at in range(1, len(members)):
        partner, key = drawn.randrange(at), drawn.choice("ab")
        joins.append(f"JOIN {members[at]} x{at} ON x{partner}.{key} = x{at}.{key}")
    conditions = [
        f"{alias}.v {drawn.choice(['>', '<', '='])} {drawn.randrange(VALUES)}"
        for alias in aliases
        if drawn.random() < 0.6
    ]
    if drawn.random() < 0.2:
        conditions.append(f"x0.v <= x{len(members) - 1}.v")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    shown = ", ".join(f"{alias}.id AS {alias}" for alias in aliases)
    query: dict[str, Any] = {"sql": f"SELECT {shown} {' '.join(joins)}{where}"}
    query["window"] = drawn.choice(["2 minutes", "5 minutes", "10 minutes"])
    query["register_at"] = 0 if drawn.random() < 0.7 else drawn.randrange(1, BATCHES)
    if drawn.random() < 0.2 and query["register_at"] + 1 < BATCHES:
        query["expire_at"] = drawn.randrange(query["register_at"] + 1, BATCHES)
    return query


def _alike(query: dict[str, Any], drawn: Random) -> dict[str, Any]:
    """``query`` with a condition over two aliases, the shortest window, and registered later."""
    word = "AND" if " WHERE " in query["sql"] else "WHERE"
    return {
        "sql": f"{query['sql']} {word} x0.v <> x1.v + {drawn.randrange(VALUES)}",
        "window": "2 minutes",
        "register_at": drawn.randrange(1, BATCHES),
    }

"""Scenarios with many queries over three streams, with common stores and keys, but different
filters, windows, and times of registration and deletion. Keys are integers; tuples are disordered,
and some are late.

``python -m tests.support.scenarios.run --engine local --crowded`` runs them with different filters
in all queries, and with all kinds of faults and changes (:func:`generate_different`,
:func:`befallen`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from anabranch_runtime.probe import program as probe
from anabranch_runtime.tags import choices, tags
from anabranch_runtime.tags import program as tag
from tests.support.oracles.oracle import from_spark
from tests.support.scenarios.changes import with_changes
from tests.support.scenarios.draw import Generated
from tests.support.scenarios.latest import with_latest
from tests.support.scenarios.rows import LOCAL, Size
from tests.support.scenarios.script import Script, draw
from tests.support.scenarios.ttls import with_ttls

#: Batches, rows of a stream per batch, values of a key, values of the filtered column.
BATCHES, ROWS, KEYS, VALUES = 8, 14, 9, 10
_STREAMS = ("r", "s", "t")
_COLUMNS = ("a", "b", "v", "id", "ts", "w")
#: Kind of scenario -> weight with which it is drawn.
KINDS = {"plain": 2, "ttl": 2, "latest": 2, "ttl and latest": 1, "changes": 3}
#: Numbers of queries; one scenario in 25 has ``MOST``.
COUNTS, MOST = (6, 12, 20, 30, 45), 300
#: Values of a text column.
_TEXTS = ("", "a", "ab", "ba", "b", "é", "aba", None)


def generate_crowded(
    seed: int, folder: Path, count: int, every: int = 2, alike: int = 0
) -> Generated:
    """Write the scenario of ``seed`` with ``count`` queries and epochs of ``every`` batches; equal
    arguments give equal scenarios. ``alike``: number of further queries with the joins of one of
    these.
    """
    rng, drawn = np.random.default_rng(seed), Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    streams = {name: _stream(name, folder, rng) for name in _STREAMS}
    queries = {f"q{number:03}": _query(drawn) for number in range(count)}
    return _written(folder, streams, queries, drawn, every, alike)


def generate_different(seed: int, folder: Path, _: Size = LOCAL) -> Generated:
    """Write a scenario with up to ``MOST`` queries in which all filters of a stream are different,
    with ttls, streams that keep the latest rows, or streams of changes.
    """
    rng, drawn = np.random.default_rng(seed), Random(f"different {seed}")
    folder.mkdir(parents=True, exist_ok=True)
    streams = {name: _stream(name, folder, rng, drawn) for name in _STREAMS}
    count = MOST if seed % 25 == 24 else drawn.choice(COUNTS)
    used = set[tuple[str, str]]()
    queries = {f"q{number:03}": _query(drawn, used) for number in range(count)}
    generated = _written(folder, streams, queries, drawn, drawn.choice((1, 2, 3)), 0)
    kind = kind_of(seed)
    if "ttl" in kind:
        generated = with_ttls(generated, seed)
    if "latest" in kind:
        generated = with_latest(generated, seed)
    return with_changes(generated, drawn) if kind == "changes" else generated


def kind_of(seed: int) -> str:
    """Return the kind of the scenario of ``seed`` (``KINDS``)."""
    return Random(f"kind {seed}").choices(list(KINDS), list(KINDS.values()))[0]


def befallen(seed: int, generated: Generated) -> Script:
    """Return a script with all kinds of faults and changes: nearly all scripts have shared stores;
    half of them have a revision before every batch, tasks on hosts that join and leave, and rations
    with catch-up of some.
    """
    rng = Random(f"befallen {seed}")
    script = replace(draw(seed, BATCHES), relaxed=rng.random() < 0.9)
    if rng.random() < 0.5:
        script = replace(script, revised=frozenset(range(1, BATCHES)))
    if rng.random() < 0.5:
        tasks = tuple((rng.randint(2, 4), rng.randint(2, 4)) for _ in range(BATCHES))
        hosts = tuple(rng.choice((1, 2, 3, 4)) for _ in range(BATCHES))
        script = replace(script, hosts=hosts, tasks=tasks, hot=True)
    if kind_of(seed) != "changes" and rng.random() < 0.5:
        rationed = frozenset(b for b in range(BATCHES) if rng.random() < 0.6)
        owed = frozenset(b for b in rationed if rng.random() < rng.choice((0.0, 0.85)))
        script = replace(script, rationed=rationed, owed=owed)
    if "latest" not in kind_of(seed) and rng.random() < 0.25:
        past = frozenset(name for name in generated.queries if rng.random() < 0.8)
        script = replace(script, past=past)
    return script


@contextmanager
def limits(seed: int) -> Iterator[None]:
    """Context with the runtime's limits drawn by ``seed``: tags are tested in rounds, or where
    pairs are found; predicate sets are translated at once, or when they are met; predicate indexes
    are replaced seldom, or after every few batches.
    """
    rng = Random(f"limits {seed}")
    few, new = rng.choice((0, probe.FEW_CHOICES)), rng.choice((0, 3, choices.MOST_NEW))
    small = rng.random() < 0.5
    enough = 24 * 20 if small else tag.FEW_BYTES
    # New indexes, without the predicates and sets of other scenarios.
    first = tag._Generation(int(tag._NEWEST[-1].name[len(tag.TAGS) :]) + 1, enough)
    with ExitStack() as stack:
        for module, name, value in (
            (probe, "FEW_CHOICES", few),
            (tags, "FEW_TESTED", few),
            (choices, "MOST_NEW", new),
            (tag, "SOON", 2 if small else tag.SOON),
            (tag, "LASTING", 3 if small else tag.LASTING),
            (tag, "MANY_BYTES", 2 * enough),
        ):
            stack.enter_context(patch.object(module, name, value))
        tag._NEWEST[:] = [first]
        yield


def _written(
    folder: Path,
    streams: dict[str, Any],
    queries: dict[str, dict[str, Any]],
    drawn: Random,
    every: int,
    alike: int,
) -> Generated:
    """Write the scenario file, with ``alike`` further queries."""
    count = len(queries)
    heads = [one for one in queries.values() if not one["register_at"]]
    queries |= {f"q{count + n:03}": _alike(drawn.choice(heads), drawn) for n in range(alike)}
    document = {
        "streams": streams,
        "queries": queries,
        "epochs": {"every": every},
        # With hundreds of queries the joint optimiser takes minutes.
        "optimizer": "shared" if count > 20 else {0: "clash", 4: "shared"},
        # With the objective in seconds, plans of so few rows have no intermediate results.
        "objective": "tuples",
        "parallelism": drawn.randint(1, 3),
    }
    (folder / "SCENARIO.yaml").write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    columns = dict.fromkeys(_STREAMS, _COLUMNS)
    return Generated(folder, {n: from_spark(q["sql"], columns) for n, q in queries.items()})


def _stream(
    name: str, folder: Path, rng: np.random.Generator, drawn: Random | None = None
) -> dict[str, Any]:
    """Write a stream; with ``drawn`` some values are NULL, and the stream has a text column."""
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
    if drawn is not None:
        known = pa.array([drawn.random() < 0.9 for _ in range(rows)])
        table["v"] = pc.if_else(known, table["v"], None)
        table["w"] = pa.array([drawn.choice(_TEXTS) for _ in range(rows)], pa.string())
    pq.write_table(pa.table(table), folder / f"{name}.parquet")
    # Bursts and gaps: a stream may have no rows in a batch.
    cuts = np.sort(rng.integers(0, rows, BATCHES - 1)).tolist()
    return {
        "path": f"{name}.parquet",
        "event_time": "ts",
        "lateness": "1 minute",
        "rows_per_batch": ROWS,
        "cuts": [*cuts, rows],
    }


def _query(drawn: Random, used: set[tuple[str, str]] | None = None) -> dict[str, Any]:
    """Draw a query; with ``used``, none of its (stream, filter) pairs is in that set."""
    members = drawn.choice([["r", "s"], ["s", "t"], ["r", "s", "t"], ["r", "t", "r"], ["s", "s"]])
    aliases = [f"x{at}" for at in range(len(members))]
    joins = [f"FROM {members[0]} x0"]
    for at in range(1, len(members)):
        partner, key = drawn.randrange(at), drawn.choice("ab")
        joins.append(f"JOIN {members[at]} x{at} ON x{partner}.{key} = x{at}.{key}")
    conditions = [
        f"{alias}.v {drawn.choice(['>', '<', '='])} {drawn.randrange(VALUES)}"
        if used is None
        else _different(alias, stream, drawn, used)
        for alias, stream in zip(aliases, members, strict=True)
        if drawn.random() < (0.6 if used is None else 0.9)
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


def _different(alias: str, stream: str, drawn: Random, used: set[tuple[str, str]]) -> str:
    """Draw a filter of ``stream`` that no other query has, of one or several conditions."""
    parts = [_condition(drawn)]
    while (stream, text := " AND ".join(sorted(set(parts)))) in used:
        parts.append(_condition(drawn))
    used.add((stream, text))
    return text.replace("?", alias)


def _condition(drawn: Random) -> str:
    """Draw a condition on ``?`` that mostly passes most rows, so that joins of three
    have results.
    """
    one, other = sorted(drawn.sample(range(VALUES), 2))
    listed = ", ".join(map(str, sorted(drawn.sample(range(VALUES), drawn.randint(3, 7)))))
    return drawn.choice(
        (
            f"?.v {drawn.choice(['>', '>=', '<', '<=', '<>'])} {drawn.randrange(VALUES)}",
            f"?.v IN ({listed})",
            f"?.v BETWEEN {one} AND {other}",
            f"NOT (?.v = {one} AND ?.b > {drawn.randrange(KEYS)})",
            f"(?.v < {one} OR ?.w LIKE '{drawn.choice(['a%', '%b', '%a%'])}')",
            f"?.w LIKE '%{drawn.choice('ab')}%'",
            f"(?.w IS NULL OR ?.v > {one})",
            f"(?.w <> '{drawn.choice(['a', 'ab', ''])}' OR ?.a >= {drawn.randrange(KEYS)})",
            f"?.v + ?.b > {drawn.randrange(KEYS)}",
        )
    )


def _alike(query: dict[str, Any], drawn: Random) -> dict[str, Any]:
    """Return ``query`` with a condition over two aliases, the shortest window, a later start."""
    word = "AND" if " WHERE " in query["sql"] else "WHERE"
    return {
        "sql": f"{query['sql']} {word} x0.v <> x1.v + {drawn.randrange(VALUES)}",
        "window": "2 minutes",
        "register_at": drawn.randrange(1, BATCHES),
    }

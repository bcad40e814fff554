"""Features of generated scenarios, to show that a short list of seeds covers all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.oracles.oracle import ROW, TAU, Oracle, OracleQuery
from tests.support.scenarios.draw import Generated
from tests.support.scenarios.file import QueryEntry, Scenario, read_document, read_scenario
from tests.support.worlds.replay_check import filtered

_COLUMN = re.compile(r"\b[a-h]\.\w+")
_EQUALITY = re.compile(r"^[\w.+() ]+ = [\w.+() ]+$")

#: Features that every list of scenarios must cover. ``key x``: a key of the Arrow type x.
WANTED = frozenset(
    {
        "late tuples",
        "out of order",
        "invalid tuples",
        "duplicates",
        "stream without event time",
        "optimizer switched",
        "self-join",
        "one tuple in two aliases",
        "arrives",
        "never active",
        "leaves",
        "sees the past",
        "window",
        "window map",
        "no window",
        "time condition",
        "residual",
        "composite key",
        "computed key",
        "cycle",
        "2-way",
        "3-way",
        "4-way",
        "5-way",
        "skewed key",
        "NULL key",
        "NaN key",
        "negative zero key",
        "key int",
        "key decimal",
        "key string",
        "key double",
        "key float",
        "key bool",
        "key date32[day]",
        "key timestamp[us, tz=UTC]",
        "key timestamp[us]",
        "keys of two types",
    }
)
#: Features that a list of hundreds of scenarios must cover as well.
WANTED_OF_MANY = WANTED | {
    "1-way",
    "same query twice at once",
    "same query again later",
    "bounds in the past only",
    "bounds that leave one instant",
    "window beside time condition",
    "two time conditions",
    *(f"key {t}" for t in ("int8", "int16", "int32", "int64")),
    *(f"key decimal128({t})" for t in ("6, 0", "9, 2", "20, 4", "20, 0", "38, 6")),
    "burst",
    "batch without one stream",
}
#: Events that must occur in hundreds of runs by random scripts as well.
WANTED_OF_MANY_RUNS = frozenset({"past of an MIR forgotten", "backfill done", "MIR asked ahead"})
#: Events that must occur in runs by random scripts, counted by ``Watch`` and ``LocalReplay``.
WANTED_OF_RUNS = frozenset(
    {
        "MIR",
        "MIR introduced again",
        "relation introduced again",
        "layout taken up again",
        "nested MIR",
        "shared prefix",
        "several copies",
        "private store",
        "three levels",
        *(f"parallelism {n}" for n in range(1, 9)),
        "stored round robin",
        "routed probe",
        "broadcast probe",
        "composite probe",
        "asked ahead",
        "dropped ahead",
        "one tuple may fill two aliases",
        "residual on an edge",
        "bound on an edge",
        "probe of several containers",
        "probe of an old container",
        "probe across layouts",
        "gap filled from the parts",
        "gap beside a container",
        "closed container kept",
        "expired",
        "merge",
        "backfill",
        "empty batch",
        "one stream's batch",
        "tasks change between batches",
        "tasks change between attempts",
        "task failed: read",
        "task failed: meet",
        "task failed: end",
        "driver gone: job",
        "driver gone: commit",
        "driver gone: committed",
        "driver gone: out of attempts",
        "restart",
        "ruleset late",
        "ruleset missing",
        "sees all of the past",
        "sees part of the past",
        "sees what has not expired",
    }
)


def features(generated: Generated) -> set[str]:
    """Return the names of a scenario's features."""
    scenario = read_scenario(generated.path)
    doc = read_document(generated.path)
    oracle = Oracle(scenario)
    try:
        found = set(_of_streams(scenario, oracle))
        batches = oracle.batches()
        for name, query in generated.queries.items():
            found |= set(_of_query(query))
            found |= set(_of_keys(query, oracle))
            found |= set(_of_life(scenario, name, generated.queries, batches))
            found |= set(_of_time(doc["queries"][name].get("window"), query))
            found |= set(_of_results(query, scenario.queries[name], oracle))
    finally:
        oracle.close()
    found |= set(_of_repeats(doc["queries"], scenario, batches))
    if isinstance(doc["optimizer"], dict):
        found.add("optimizer switched")
    return found


def _of_streams(scenario: Scenario, oracle: Oracle) -> Iterator[str]:
    for name, stream in scenario.streams.items():
        counts = oracle.counts(name)
        if counts.late:
            yield "late tuples"
        if counts.invalid:
            yield "invalid tuples"
        if stream.event_time is None:
            yield "stream without event time"
        elif oracle.one(f"SELECT count(*) FROM (SELECT {TAU} < max({TAU}) OVER (ORDER BY {ROW}"
                        f' ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS x FROM "{name}")'
                        " WHERE x"):  # fmt: skip
            yield "out of order"
        if oracle.one(f'SELECT count(*) - count(DISTINCT id) FROM "{name}"'):
            yield "duplicates"
        if stream.cuts is not None:
            sizes = [b - a for a, b in zip((0, *stream.cuts), stream.cuts, strict=False)]
            if max(sizes) > 2 * sum(sizes) / max(sum(s > 0 for s in sizes), 1):
                yield "burst"
            if 0 in sizes:
                yield "batch without one stream"


def _of_query(query: OracleQuery) -> Iterator[str]:
    streams = [s for _, s in query.members]
    yield f"{len(streams)}-way"
    if len(set(streams)) < len(streams):
        yield "self-join"
    pairs = [frozenset(c.split(".")[0] for c in sides) for sides in _keys(query)]
    edges = Counter(pairs)
    if edges and max(edges.values()) > 1:
        yield "composite key"
    if len(edges) >= len(streams) > 1:
        yield "cycle"
    columns = [set(_COLUMN.findall(c)) for c in query.where if "ts" not in c]
    known = [set(sides) for sides in _keys(query)]
    if any(len({x.split(".")[0] for x in c}) == 2 and c not in known for c in columns):
        yield "residual"
    if any("+ 0" in c or "lower(" in c for c in query.where):
        yield "computed key"


def _of_keys(query: OracleQuery, oracle: Oracle) -> Iterator[str]:
    stream_of = dict(query.members)
    for sides in _keys(query):
        types = set()
        for side in sides:
            alias, column = side.split(".")
            stream = stream_of[alias]
            kind = pq.read_schema(oracle.scenario.streams[stream].path).field(column).type
            types.add(kind)
            yield f"key {kind}"
            if pa.types.is_integer(kind):
                yield "key int"
            if pa.types.is_decimal(kind):
                yield "key decimal"
            counted = f'SELECT count(*) FROM "{stream}" WHERE {column}'
            if oracle.one(f"{counted} IS NULL"):
                yield "NULL key"
            if pa.types.is_floating(kind):
                if oracle.one(f"{counted} = 'NaN'"):
                    yield "NaN key"
                if oracle.one(f"{counted} = 0 AND signbit({column})"):
                    yield "negative zero key"
            most = oracle.one(f'SELECT max(n) / sum(n) FROM (SELECT count(*) AS n FROM "{stream}"'
                              f" WHERE {column} IS NOT NULL GROUP BY {column})")  # fmt: skip
            if most is not None and most > 0.3 and not pa.types.is_boolean(kind):
                yield "skewed key"
        if len(types) > 1:
            yield "keys of two types"


def _of_time(window: object, query: OracleQuery) -> Iterator[str]:
    yield "no window" if window is None else "window map" if isinstance(window, dict) else "window"
    timed = [c for c in query.where if c.count(".ts") >= 2]
    if timed:
        yield "time condition"
        if window is not None:
            yield "window beside time condition"
    if len(timed) > 1:
        yield "two time conditions"
    if any("INTERVAL '5' MINUTE AND" in c and "INTERVAL '2' HOUR" in c for c in timed):
        yield "bounds in the past only"
    if any(c.count("<=") == 2 and "INTERVAL" not in c for c in timed):
        yield "bounds that leave one instant"


def _of_results(query: OracleQuery, entry: QueryEntry, oracle: Oracle) -> Iterator[str]:
    """Return whether a stored tuple is a partner of itself, in full history."""
    for (one, stream), (other, same) in combinations(query.members, 2):
        if stream == same:
            itself = replace(query, where=(*query.where, f"{one}.{ROW} = {other}.{ROW}"))
            if oracle.size(itself, entry, 1):
                yield "one tuple in two aliases"


def _of_repeats(queries: dict[str, Any], scenario: Scenario, batches: int) -> Iterator[str]:
    for (one, said), (other, again) in combinations(queries.items(), 2):
        if said["sql"] != again["sql"] or said.get("window") != again.get("window"):
            continue
        spans = [scenario.span(name, batches) for name in (one, other)]
        if any(begins is None for begins, _ in spans):
            continue
        (first, end), (second, late_end) = spans
        apart = any(
            stop is not None and start is not None and stop <= start
            for stop, start in ((end, second), (late_end, first))
        )
        yield "same query again later" if apart else "same query twice at once"


def _keys(query: OracleQuery) -> list[tuple[str, str]]:
    """Yield the two columns of every equality between two aliases."""
    found = []
    for condition in query.where:
        columns = _COLUMN.findall(condition)
        if _EQUALITY.match(condition) and len({c.split(".")[0] for c in columns}) == 2:
            found.append((columns[0], columns[1]))
    return found


def _of_life(
    scenario: Scenario, name: str, queries: dict[str, OracleQuery], batches: int
) -> Iterator[str]:
    begins, ends = scenario.span(name, batches)
    if begins is None:
        yield "never active"
        return
    if ends is not None:
        yield "leaves"
    if begins == 0:
        return
    yield "arrives"
    stored = {
        stream
        for other, query in queries.items()
        for alias, stream in query.members
        if alias not in filtered(query)
        and scenario.span(other, batches)[0] == 0
        and (scenario.span(other, batches)[1] or batches) > begins
    }
    if {s for _, s in queries[name].members} <= stored and not filtered(queries[name]):
        yield "sees the past"

"""Random scenarios in which some streams are tables, with and without keys.

Additions are drawn by a separate generator, so that the rest of a seed's scenario stays the same.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import yaml

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from tests.support.plain_service import stream_of
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import read_document, read_scenario
from tests.support.scenarios.latest import keys_of
from tests.support.scenarios.rows import RECORDED, Size


def generate_with_tables(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate the scenario of ``seed`` with tables. Queries over tables only are left out, and
    queries whose conditions on event times can't be checked as conditions on columns.
    """
    generated, rng = generate(seed, folder, size), Random(f"tables {seed}")
    document = read_document(generated.path)
    names = sorted(document["streams"])
    tables = set(rng.sample(names, rng.randint(1, len(names) - 1)))
    for name in tables:
        entry = document["streams"][name]
        keyed = rng.random() < 0.6
        as_table(entry, keys_of(generated.path.parent / entry["path"]) if keyed else [], rng)
    for name, entry in document["streams"].items():
        if name not in tables and rng.random() < 0.15:
            entry["retain"] = "all"
    for name, query in document["queries"].items():
        of_tables = {a for a, s in generated.queries[name].members if s in tables}
        if isinstance(query.get("window"), dict):
            left = {a: w for a, w in query["window"].items() if a not in of_tables}
            query.pop("window")
            query |= {"window": left} if left else {}
        if rng.random() < 0.4:
            query["register_at"] = 0
    _write(generated, document)
    for name in impossible(generated):
        del document["queries"][name]
        del generated.queries[name]
    _write(generated, document)
    return generated


def as_table(entry: dict[str, Any], keys: list[str], rng: Random) -> None:
    """Convert a stream's entry to a table's, with a key from ``keys`` (empty: without one)."""
    for field in ("event_time", "lateness", "idle_timeout", "keep_late", "retention", "retain"):
        entry.pop(field, None)
    entry["kind"] = "table"
    if keys:
        entry["key"] = rng.sample(keys, rng.choice((1, 1, 2)))


def _write(generated: Generated, document: dict[str, Any]) -> None:
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))


def impossible(generated: Generated, *, alone: bool = False) -> list[str]:
    """Return the queries that are refused over the scenario's streams and, unless ``alone``,
    queries over tables only, whose results change with the tables' rows.
    """
    scenario = read_scenario(generated.path)
    streams = {name: stream_of(scenario, name) for name in scenario.streams}
    found = []
    for name, entry in scenario.queries.items():
        try:
            query = parse_sql(name, entry.sql, streams, entry.window)
        except QueryError:
            found.append(name)
        else:
            if not alone and all(streams[r.stream].is_table for r in query.relations):
                found.append(name)
    return found

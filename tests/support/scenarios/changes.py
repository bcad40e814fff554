"""Random scenarios with streams of changes: deletes of rows of earlier batches, of the same batch,
of later batches, and of rows that never arrive; updates; rows with an unknown operation.

Changes are drawn by a separate generator, so that the rest of a seed's scenario stays the same.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.support.oracles.oracle import OracleQuery, weight_of
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import read_document
from tests.support.scenarios.latest import keys_of
from tests.support.scenarios.past import generate_with_past
from tests.support.scenarios.rows import RECORDED, Size
from tests.support.scenarios.tables import as_table, impossible

#: Column of the operation, and operations that insert or delete.
OPERATION, INSERTS, DELETES = "op", ("c", "insert", "+I", "+U"), ("d", "DELETE", "-U")


def generate_with_changes(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate the scenario of ``seed`` with streams of changes, and queries registered again."""
    rng = Random(f"changes {seed}")
    make = generate_with_past if rng.random() < 0.5 else generate
    return with_changes(make(seed, folder, size), rng)


def with_changes(generated: Generated, rng: Random) -> Generated:
    """Return the scenario with some streams converted into streams of changes."""
    folder, document = generated.folder, read_document(generated.path)
    changing = [name for name in document["streams"] if rng.random() < 0.6]
    for name in changing or [next(iter(document["streams"]))]:
        stream = document["streams"][name]
        stream |= {"kind": "changes", "changes": {"operation": OPERATION}}
        if rng.random() < 0.8:
            stream["retain"] = "all"
        path = folder / stream["path"]
        pq.write_table(_changed(pq.read_table(path), rng), path, row_group_size=50)
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    changes = {n for n, s in document["streams"].items() if s.get("kind") == "changes"}
    queries = {name: _signed(query, changes) for name, query in generated.queries.items()}
    return replace(generated, queries=queries)


def generate_with_upserts(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate the scenario of ``seed`` with streams of upserts, and queries registered again."""
    rng = Random(f"upserts {seed}")
    make = generate_with_past if rng.random() < 0.5 else generate
    generated = make(seed, folder, size)
    document = read_document(generated.path)
    changing = [name for name in document["streams"] if rng.random() < 0.5]
    for name in changing or [next(iter(document["streams"]))]:
        stream, path = document["streams"][name], folder / document["streams"][name]["path"]
        for field in ("event_time", "lateness"):
            stream.pop(field, None)
        key = rng.sample(keys_of(path), rng.choice((1, 1, 2)))
        stream |= {"kind": "upsert", "key": key, "changes": {"operation": OPERATION}}
        stream |= {"retain": "all"}
        rows = pq.read_table(path)
        operations = [rng.choice(("c", "u", "r", "d")) for _ in range(rows.num_rows)]
        rows = rows.append_column(OPERATION, pa.array(operations, pa.string()))
        pq.write_table(rows, path, row_group_size=50)
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    changes = {n for n, s in document["streams"].items() if s.get("kind") == "upsert"}
    queries = {name: _signed(query, changes) for name, query in generated.queries.items()}
    generated = replace(generated, queries=queries)
    for name, query in document["queries"].items():
        if isinstance(query.get("window"), dict):
            members = dict(generated.queries[name].members)
            left = {a: w for a, w in query.pop("window").items() if members[a] not in changes}
            query |= {"window": left} if left else {}
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    for name in impossible(generated):
        del document["queries"][name], generated.queries[name]
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    return generated


def generate_with_followed(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate the scenario of ``seed`` with streams of changes or upserts, and with tables (with
    or without keys), whose rows queries look up or follow.
    """
    rng = Random(f"followed {seed}")
    make = rng.choice((generate_with_changes, generate_with_upserts, generate))
    generated = make(seed, folder, size)
    document = read_document(generated.path)
    others = sorted(n for n, s in document["streams"].items() if "changes" not in s)
    tables = rng.sample(others, min(len(others), rng.choice((1, 1, 2, 3))))
    for name in tables:
        keys = keys_of(folder / document["streams"][name]["path"])
        as_table(document["streams"][name], keys if rng.random() < 0.7 else [], rng)
    queries = dict(generated.queries)
    for name, query in document["queries"].items():
        members = dict(generated.queries[name].members)
        if isinstance(query.get("window"), dict):
            left = {a: w for a, w in query.pop("window").items() if members[a] not in tables}
            query |= {"window": left} if left else {}
        keyed = any("key" in document["streams"][s] for s in members.values())
        if keyed and set(tables) >= set(members.values()):
            select = (*queries[name].select, ("'insert'", "anabranch_change", False))
            queries[name] = replace(queries[name], select=select)
    generated = replace(generated, queries=queries)
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    for name in impossible(generated, alone=True):
        del document["queries"][name], generated.queries[name]
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    return generated


def _changed(rows: pa.Table, rng: Random) -> pa.Table:
    """Return as many rows, some of them converted into deletes and updates."""
    count, share = rows.num_rows, rng.choice((0.1, 0.3, 0.5))
    near = rng.choice((3, 30, max(count, 1)))
    values = rows.to_pylist()
    operations: list[str | None] = [rng.choice(INSERTS) for _ in values]
    free = [at for at in range(count) if rng.random() < share]
    while free:
        at = free.pop()
        # The deleted row is mostly an earlier one, else a later one or one that never arrives.
        other = at + rng.choice((-1, -1, -1, 1)) * rng.randint(1, near)
        drawn = rng.random()
        if drawn < 0.03:
            operations[at] = rng.choice(("?", "", None))
            continue
        operations[at] = rng.choice(DELETES)
        if 0 <= other < count and drawn < 0.93:
            values[at] = dict(values[other])
            if free and rng.random() < 0.3:  # an update: the row comes again with other values
                again = free.pop()
                values[again] = values[at] | {"v": rng.randint(0, 9)}
    table = pa.Table.from_pylist(values, rows.schema)
    return table.append_column(OPERATION, pa.array(operations, pa.string()))


def _signed(query: OracleQuery, changes: set[str]) -> OracleQuery:
    """The query with the kind of change as its last column, if it reads a stream of changes."""
    weight = weight_of(query.members, changes)
    if weight is None:
        return query
    text = f"CASE WHEN {weight} < 0 THEN 'delete' ELSE 'insert' END"
    return replace(query, select=(*query.select, (text, "anabranch_change", False)))

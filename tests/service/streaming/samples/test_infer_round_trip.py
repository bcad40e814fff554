"""Tests of random tables in files: proposals are registered, and the rows arrive with
their values.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.rest.streams import StreamIn
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.files.feed import file_feed
from anabranch_service.routes.streams import read_stream
from anabranch_service.settings import ServiceSettings
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.service import Service

NAMES = [
    "id",
    "größe",
    "my column",
    "日付",
    "a.b",
    "a,b",
    'say "x"',
    "Ts",
    "x:y",
    "é",
    "42nd",
    "a`b",
]
TEXTS = [
    *("x", "äß", "007", "+5", "1e5", "TRUE", "no", "2026-01-02", "2026-1-2", "a\nb", " ", "NaN"),
    *("12", "-0", "0x1", "2026-01-02 03:04", "2026-01-02T03:04:05.123456Z", "😀,;", '"', "1.50"),
]


def makers(chance: random.Random) -> list[Callable[[], Any]]:
    """Return functions that make the values of a column, one per kind."""
    micros = chance.choice([1, 1000, 10**6])
    few = chance.sample(TEXTS, chance.randrange(1, 4))
    return [
        lambda: chance.randrange(-(1 << 63), 1 << 63) >> chance.randrange(63),
        lambda: chance.choice([chance.gauss(0, 1e6), 0.5, -1e-7, 1e22]),
        lambda: chance.random() < 0.5,
        lambda: date(1970, 1, 1) + timedelta(days=chance.randrange(-9000, 30_000)),
        lambda: (
            datetime(2000, 1, 1, tzinfo=UTC)
            + timedelta(microseconds=chance.randrange(10**15) // micros * micros)
        ),
        lambda: chance.choice(few),
        lambda: chance.choice(TEXTS),
    ]


def table_of(chance: random.Random, nested: bool) -> list[dict[str, Any]]:
    columns = dict[str, Callable[[], Any]]()
    for name in chance.sample(NAMES, chance.randrange(1, 7)):
        make = chance.choice(makers(chance))
        if nested and chance.random() < 0.3:
            make = inside(chance, make, chance.choice(makers(chance)))
        columns[name] = make
    # A blank line in CSV is no record.
    nulls = chance.choice([0, 0, 0.2]) if nested or len(columns) > 1 else 0
    return [
        {name: None if chance.random() < nulls else make() for name, make in columns.items()}
        for _ in range(chance.randrange(1, 40))
    ]


def inside(
    chance: random.Random, make: Callable[[], Any], other: Callable[[], Any]
) -> Callable[[], Any]:
    if chance.random() < 0.5:
        return lambda: [make() for _ in range(chance.randrange(1, 3))]
    return lambda: {"a b": make(), "ü": {"deep": other()}}


def cell(value: Any) -> str:
    """Return a CSV field: texts in quotes, so that an empty field is NULL."""
    if value is None:
        return ""
    text = str(value) if not isinstance(value, float) else repr(value)
    return '"' + text.replace('"', '""') + '"' if isinstance(value, str) else text


def write(rows: list[dict[str, Any]], kind: str, path: Path, chance: random.Random) -> None:
    if kind == "csv":
        separator = chance.choice([",", ";", "\t", "|"])
        header = separator.join(cell(name) for name in rows[0])
        lines = [header, *(separator.join(map(cell, row.values())) for row in rows)]
        path.write_text("\n".join(lines), newline="")
    elif kind == "json":
        texts = [json.dumps(row, default=str, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(texts))
    else:
        table = pa.Table.from_pylist(rows, pa.Table.from_pylist(rows).schema)
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)


def same(given: Any, arrived: Any) -> bool:
    """Whether a value arrived as it was written: another type is allowed only for the
    same value.
    """
    if isinstance(given, list):
        return len(given) == len(arrived) and all(map(same, given, arrived))
    if isinstance(given, dict):
        return all(same(value, arrived[name]) for name, value in given.items())
    if type(given) is type(arrived):
        return bool(given == arrived)
    if isinstance(arrived, datetime):
        found = datetime.fromisoformat(str(given).replace("Z", "+00:00"))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)) == arrived
    if isinstance(arrived, date):
        return date.fromisoformat(given) == arrived
    if isinstance(arrived, bool):
        return str(given).lower() == str(arrived).lower()
    if isinstance(arrived, int):
        return str(given) == str(arrived) or given == arrived
    if isinstance(arrived, float):
        return math.isclose(float(given), arrived, rel_tol=0)
    if isinstance(arrived, Decimal):
        return Decimal(str(given)) == arrived
    return bool(str(given) == arrived)


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "arrow"])
@pytest.mark.parametrize("seed", mostly_slow(range(25), 6))
def test_what_is_proposed_is_registered_and_read(
    untouched: Service, settings: ServiceSettings, tmp_path: Path, kind: str, seed: int
) -> None:
    chance = random.Random(f"{kind} {seed}")
    rows = table_of(chance, nested=kind != "csv")
    (tmp_path / "in").mkdir()
    write(rows, kind, tmp_path / "in" / "a", chance)
    body = {"name": "s", "columns": {}, "source": {"format": "files", "path": f"{tmp_path}/in"}}
    found = untouched.post("/v1/streams:test?propose=true", body, 200)
    assert (found["outcome"], found["invalid"]) == ("read", 0), found
    asked = found["registration"]
    assert asked["source"]["options"]["type"] == kind
    left = {name for name in rows[0] if all(row[name] is None for row in rows)}
    names = [c["name"] for c in asked["columns"]]
    assert {*rows[0]} - left <= {*names} <= {*rows[0]}, found["notes"]
    name = f"s_{kind}_{seed}"
    made = untouched.post("/v1/streams", {**asked, "name": name})
    untouched.call("DELETE", f"/v1/streams/{name}", 204)
    assert made["columns"] == asked["columns"]
    record = read_stream(StreamIn.model_validate(asked), settings)
    feed = file_feed(record, str(tmp_path / "state"), OPEN)
    assert feed.waiting(None).rows
    end = feed.advance(None, 1000)
    arrived = list[dict[str, Any]]()
    for piece in feed.pieces(None, end, 1):
        for good, bad in read_piece(piece):
            assert bad is None, bad.to_pylist()
            arrived += good.select(names).to_pylist()
    assert len(arrived) == len(rows)
    for given, row in zip(rows, arrived, strict=True):
        for column in names:
            assert (given[column] is None) == (row[column] is None)
            assert given[column] is None or same(given[column], row[column]), column
    assert Counter(map(len, arrived)) == {len(names): len(rows)}

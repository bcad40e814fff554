"""Compare current tables (Delta) after every batch with the sum of all changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks.lake.rows import counted
from tests.runtime.sinks.lake.test_delta_and_iceberg import overtaken
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.deliveries import staged
from tests.support.surroundings.lakes import Lake

SCHEMA = pa.schema(
    [
        ("Id", pa.int64()),
        ("day", pa.string()),
        ("x", pa.float64()),
        ("moment", pa.timestamp("us", "UTC")),
        ("anabranch_change", pa.string()),
    ]
)
COUNT = "anabranch_count"


def changes(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA
    )


def row(key: int | None, value: float | None, change: str) -> tuple[Any, ...]:
    day = None if key is None or key % 5 == 0 else f"d{key % 3}"
    return (key, day, value, None if key is None else key * 1_000_001, change)


def test_equal_changes_cancel() -> None:
    some = changes(
        row(1, 1.0, "insert"),
        row(2, 1.0, "delete"),
        row(2, 2.0, "insert"),
        row(1, 1.0, "insert"),
        row(4, -0.0, "delete"),
        row(4, 0.0, "insert"),
        row(None, float("nan"), "delete"),
        row(None, None, "delete"),
        row(None, float("nan"), "insert"),
    )
    found = counted(pa.Table.from_batches([some.slice(0, 3), some.slice(3)]))
    assert Counter((r["Id"], r["x"], r[COUNT]) for r in found.to_pylist()) == Counter(
        [(1, 1.0, 2), (2, 1.0, -1), (2, 2.0, 1), (None, None, -1)]
    )


def summed(log: list[pa.RecordBatch]) -> Counter[str]:
    """Return the current rows with their numbers by DuckDB, from all changes."""
    rows = pa.Table.from_batches(log, SCHEMA)  # noqa: F841 - read by DuckDB
    found = duckdb.execute(
        "SELECT Id, day, x + 0.0, moment, "
        "sum(CASE anabranch_change WHEN 'delete' THEN -1 ELSE 1 END) AS n "
        "FROM rows GROUP BY ALL HAVING n <> 0"
    )
    return Counter(map(str, found.fetchall()))


@pytest.mark.parametrize("seed", mostly_slow(range(40), 3))
def test_random_changes_in_any_order_leave_the_current_rows(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, lake = Random(seed), Lake("delta", tmp_path / "lake")
    options = {"anabranch__table": "current", "targetFileSize": random.choice(("1000", "9999999"))}
    if random.random() < 0.5:
        options["anabranch__partitionBy"] = "day"
    if random.random() < 0.5:
        options["anabranch__batchColumn"] = "origin"
    to, log, deliveries = lake.sink(**options), list[pa.RecordBatch](), []
    for batch in range(random.randint(5, 12)):
        made = []
        for _ in range(random.randint(1, 25)):
            # Some deletes come before their inserts, and some rows several times.
            key = random.choice((None, *range(6)))
            value = random.choice((0.0, -0.0, 1.5, None, float("inf"), float("nan")))
            made.append(row(key, value, random.choice(("insert", "delete"))))
        log.append(changes(*made))
        cut = random.randrange(len(made) + 1)
        parts = [part for part in (log[-1].slice(0, cut), log[-1].slice(cut)) if part.num_rows]
        one, again = (staged(tmp_path / n, "q", to, batch, *parts) for n in ("one", "again"))
        if random.random() < 0.3:
            overtaken(lake, monkeypatch, again, one)
        else:
            lake.commit(one)
        deliveries.append(again)
        # The state is rolled back: the last batches are repeated.
        for late in deliveries[len(deliveries) - random.choice((0, 0, 1, 2, 3)) :]:
            lake.commit(late)
        if not (tmp_path / "lake").exists():
            assert not summed(log)
            continue
        if random.random() < 0.1:
            DeltaTable(lake.path).optimize.compact()
        shown = lake.read()  # noqa: F841 - read by DuckDB
        found = duckdb.execute(f"SELECT Id, day, x + 0.0, moment, {COUNT} FROM shown").fetchall()
        assert Counter(map(str, found)) == summed(log)


@pytest.mark.parametrize("seed", mostly_slow(range(20), 2))
def test_random_versions_of_a_view_leave_its_newest(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, lake = Random(seed), Lake("delta", tmp_path / "lake")
    keys = [None, "a", "A", "b'", *map(str, range(9))]
    to = lake.sink(anabranch__table="current", anabranch__key="K", anabranch__batchColumn="origin")
    state: dict[str | None, dict[str, Any]] = {}
    for number in range(0, 30, 3):
        some = random.sample(keys, random.randint(1, len(keys)))
        lines = []
        for key in some:
            gone = random.random() < 0.3
            line = {"k": key, "n": [random.random()], "anabranch_version": number}
            lines.append(line | {"anabranch_change": "delete" if gone else "upsert"})
            state.pop(key, None)
            if not gone:
                state[key] = line | {"origin": f"v/{number:010d}"}
        names = ("k", "n", "anabranch_change", "anabranch_version")
        columns = {name: [line[name] for line in lines] for name in names}
        columns["k"] = pa.array(columns["k"], pa.string())
        one, again = (
            staged(tmp_path / n, "v", to, number, pa.record_batch(columns)) for n in ("one", "two")
        )
        if random.random() < 0.3:
            overtaken(lake, monkeypatch, again, one)
        lake.commit(one)
        assert {line["k"]: line for line in lake.read().to_pylist()} == state


def test_a_view_of_one_row(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path / "lake")
    to = lake.sink(anabranch__table="current")
    for number, change in enumerate(("upsert", "upsert", "delete", "upsert")):
        made = {"n": [number], "anabranch_change": [change], "anabranch_version": [number]}
        lake.commit(staged(tmp_path, "v", to, number, pa.record_batch(made)))
        found = lake.read()["n"].to_pylist()
        assert found == ([] if change == "delete" else [number])


def test_a_table_that_is_no_current_table(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path / "lake")
    lake.commit(staged(tmp_path, "q", lake.sink(), 0, changes(row(1, 1.0, "insert"))))
    to = lake.sink(anabranch__table="current")
    with pytest.raises(SinkError, match="anabranch_count") as caught:
        lake.commit(staged(tmp_path, "p", to, 0, changes(row(1, 1.0, "insert"))), "p")
    assert caught.value.code == "table-differs"

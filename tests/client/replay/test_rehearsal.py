"""Tests of the checks of a scenario before Spark starts, through the command itself."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.kin import no_kin_left
from tests.support.surroundings.terminal import in_terminal, piped

JOIN = "SELECT o.id, c.city FROM orders o JOIN customers c ON o.customer = c.id"
GOOD = f"""
streams:
  orders: {{path: orders.parquet, rows_per_batch: 2}}
  customers: {{path: customers.parquet, rows_per_batch: 1}}
queries:
  first: {{sql: "{JOIN}", expire_at: 3}}
  a-query-with-quite-a-long-name-of-its-own-that-goes-on: {{sql: "{JOIN}", register_at: 5}}
epochs: {{every: 2}}
"""
LONG = "a-query-with-quite-a-long-name-of-its-own-that-goes-on"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    orders = pa.table({"id": list(range(12)), "customer": [n % 4 for n in range(12)]})
    pq.write_table(orders, tmp_path / "orders.parquet")
    pq.write_table(pa.table({"id": [0, 1], "city": ["a", "b"]}), tmp_path / "customers.parquet")
    return tmp_path


def written(folder: Path, text: str) -> str:
    path = folder / "s.yaml"
    path.write_text(text)
    return str(path)


def test_a_scenario_in_order_is_outlined_and_nothing_is_left(folder: Path) -> None:
    path = written(folder, GOOD)
    with no_kin_left():
        done = piped("replay", path, "--check", "--json")
    assert (done.code, done.stderr) == (0, ""), done
    found = json.loads(done.stdout)
    assert found["batches"] == 6
    assert found["queries"]["first"] == {"register_at": 0, "active_from": 0, "expire_at": 3}
    assert found["queries"][LONG]["active_from"] is None
    assert [LONG in note for note in found["notes"]] == [True]
    narrow = in_terminal(40, "replay", path, "--check")
    assert narrow.code == 0
    assert "…" not in narrow.stdout
    assert "in order: 6 batches, 2 an epoch" in narrow.stdout
    assert sorted(p.name for p in folder.iterdir()) == [
        "customers.parquet", "orders.parquet", "s.yaml",
    ]  # fmt: skip


def test_all_mistakes_of_a_file_are_named_at_once_with_their_places(folder: Path) -> None:
    text = GOOD.replace("rows_per_batch: 2", "rows_per_batch: 2, even_time: ts")
    text = text.replace("expire_at: 3", "expire_at: three")
    done = piped("replay", written(folder, text + "paralelism: 2\n"), "--check")
    assert (done.code, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
    assert "streams.orders.even_time: unknown key, line 3 (did you mean event_time?" in done.stderr
    assert "queries.first.expire_at: " in done.stderr
    assert "paralelism: unknown key, line 9 (did you mean parallelism?" in done.stderr


def test_a_query_after_the_end_is_refused(folder: Path) -> None:
    done = piped(
        "replay", written(folder, GOOD.replace("register_at: 5", "register_at: 6")), "--check"
    )
    assert (done.code, done.stdout) == (2, "")
    assert f"queries.{LONG}.register_at: 6 is beyond the end of the input" in done.stderr
    assert "last batch is 5" in done.stderr


@pytest.mark.parametrize("check", mostly_slow([False, True]))
def test_sql_is_judged_before_spark_starts_and_nothing_is_written(
    folder: Path, check: bool
) -> None:
    text = GOOD.replace("o.id, c.city FROM", "o.colour FROM", 1)
    text = text.replace("epochs:", '  third: {sql: "SELECT FROM", window: 1 hour}\nepochs:')
    out = folder / "out"
    how = ("--check",) if check else ("--out", str(out))
    done = piped("replay", written(folder, text), *how)
    assert (done.code, done.stdout) == (1, ""), done
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("error: queries.first.sql")
    assert "colour" in lines[0]
    assert lines[1].startswith("error: queries.third.sql")
    assert not out.exists()


def test_an_output_folder_that_is_used_is_refused_at_once(folder: Path) -> None:
    path = written(folder, GOOD)
    for how in ((), ("--check",), ("--force",)):
        done = piped("replay", path, "--out", str(folder), *how)
        assert (done.code, done.stdout) == (2, "")
        assert "--out" in done.stderr
        assert "no replay made it" in done.stderr
    missing = piped("replay", path)
    assert (missing.code, "--out" in missing.stderr) == (2, True)

"""Tests of Parquet result files: staged, moved into place, replaced by a later attempt at the same
batch.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_runtime.sinks import parquet as sinks
from anabranch_runtime.sinks.parquet import (
    STAGING,
    ParquetSink,
    ResultWriter,
    clear_staging,
    write_empty,
)
from tests.support.cases.states import RS, rules

SCHEMA = pa.schema([("x", pa.int64())])


def stage(
    results: Path, attempt: str, query: str, task: int, *values: int
) -> tuple[str, int, Path]:
    path = results / STAGING / attempt / query / f"{task}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = ResultWriter(path, SCHEMA, page=1 << 20)
    for value in values:
        writer.add(pa.record_batch({"x": [value]}, schema=SCHEMA))
    writer.close()
    return query, task, path


def seen(results: Path) -> dict[str, list[int]]:
    return {
        f"{p.parent.name}/{p.name}": pq.read_table(p).column("x").to_pylist()
        for p in sorted(results.glob("*/*.parquet"))
    }


def test_what_is_staged_is_not_seen_before_it_is_published(tmp_path: Path) -> None:
    staged = [stage(tmp_path, "one", "q", 0, 1, 2), stage(tmp_path, "one", "q", 3, 3)]
    assert seen(tmp_path) == {}

    found = ParquetSink(tmp_path, 0).publish(7, staged)

    assert seen(tmp_path) == {
        "q/0000000007-00000.parquet": [1, 2],
        "q/0000000007-00003.parquet": [3],
    }
    assert [file.name for file in found["q"]] == [
        "0000000007-00000.parquet",
        "0000000007-00003.parquet",
    ]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_later_attempt_replaces_all_that_an_earlier_one_left(
    tmp_path: Path, restarted: bool
) -> None:
    sink = ParquetSink(tmp_path, 0)
    sink.publish(6, [stage(tmp_path, "zero", "q", 0, 60)])
    sink.publish(70, [stage(tmp_path, "zero", "q", 0, 700)])
    sink.publish(
        7,
        [
            stage(tmp_path, "one", "q", 0, 1),
            stage(tmp_path, "one", "q", 1, 2),
            stage(tmp_path, "one", "p", 0, 3),
        ],
    )
    if restarted:
        sink = ParquetSink(tmp_path, 7)
    sink.publish(7, [stage(tmp_path, "two", "q", 1, 9)])

    assert seen(tmp_path) == {
        "q/0000000006-00000.parquet": [60],
        "q/0000000007-00001.parquet": [9],
        "q/0000000070-00000.parquet": [700],
    }


def test_two_batches_that_are_repeated_replace_what_both_left(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, 0)
    for batch in (7, 8):
        sink.publish(batch, [stage(tmp_path, "one", "q", task, task) for task in (0, 1)])

    again = ParquetSink(tmp_path, 7)
    for batch in (7, 8):
        again.publish(batch, [stage(tmp_path, "two", "q", 0, 0, 1)])

    assert seen(tmp_path) == {
        "q/0000000007-00000.parquet": [0, 1],
        "q/0000000008-00000.parquet": [0, 1],
    }


def test_versions_of_views_are_no_files_of_batches(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, 0)
    for number in (6, 7):
        sink.publish(number, [stage(tmp_path, "one", "q", 0, number)])
    (tmp_path / "v").mkdir()
    written = tmp_path / "q" / "0000000007-00000.parquet"
    written.rename(tmp_path / "v" / "version-0000000008.parquet")

    ParquetSink(tmp_path, 8).publish(8, [stage(tmp_path, "two", "q", 0, 80)])

    assert seen(tmp_path) == {
        "q/0000000006-00000.parquet": [6],
        "q/0000000008-00000.parquet": [80],
        "v/version-0000000008.parquet": [7],
    }


def test_publishing_nothing_still_removes_what_an_earlier_attempt_left(tmp_path: Path) -> None:
    ParquetSink(tmp_path, 0).publish(7, [stage(tmp_path, "one", "q", 0, 1)])
    sink = ParquetSink(tmp_path, 7)
    assert sink.publish(7, []) == {}
    assert seen(tmp_path) == {}
    assert ParquetSink(tmp_path / "new", 0).publish(0, []) == {}


def test_staging_of_all_attempts_is_cleared(tmp_path: Path) -> None:
    stage(tmp_path, "one", "q", 0, 1)
    stage(tmp_path, "other", "q", 0, 2)
    clear_staging(tmp_path)
    assert list((tmp_path / STAGING).iterdir()) == []
    clear_staging(tmp_path / "nowhere")


def test_small_batches_share_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "GROUP_ROWS", 4)
    _, _, path = stage(tmp_path, "one", "q", 0, *range(10))
    meta = pq.read_metadata(path)
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [4, 4, 2]
    assert pq.read_table(path).column("x").to_pylist() == list(range(10))


def test_a_query_without_results_gets_a_typed_empty_file_and_only_then(tmp_path: Path) -> None:
    query = rules(0, {"q": RS}).queries[0]
    write_empty(tmp_path, query)
    empty = pq.read_table(tmp_path / "q" / "empty.parquet")
    assert (empty.num_rows, empty.schema.names) == (0, ["a", "b"])

    ParquetSink(tmp_path / "other", 0).publish(0, [stage(tmp_path / "other", "one", "q", 0, 1)])
    write_empty(tmp_path / "other", query)
    assert list(seen(tmp_path / "other")) == ["q/0000000000-00000.parquet"]

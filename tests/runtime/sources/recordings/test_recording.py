"""Tests of recordings: converted once, with declared types, any batch a slice, errors that name the
cause.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.sources.recordings import recording
from anabranch_runtime.sources.recordings.recording import batches_of, convert, read_rows

ROWS = 23


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make record batches so short that slices cross them."""
    monkeypatch.setattr(recording, "RUN", 5)


def file_of(folder: Path, **columns: pa.Array) -> Path:
    path = folder / "r.parquet"
    found = columns or {
        "unused": pa.array(["x"] * ROWS),
        "ts": pa.array([datetime(2024, 1, 1, 0, 0, n, tzinfo=UTC) for n in range(ROWS)]),
        "k": pa.array([None if n == 4 else n for n in range(ROWS)], pa.int32()),
    }
    pq.write_table(pa.table(found), path, row_group_size=7)
    return path


def record(path: Path | None, rows_per_batch: int | None = 6, **columns: str) -> StreamRecord:
    declared = columns or {"k": "bigint", "ts": "timestamp"}
    return StreamRecord(
        name="r",
        columns=tuple(ColumnRecord(name=n, type=t) for n, t in declared.items()),
        source=SourceRecord(path=str(path) if path else None, rows_per_batch=rows_per_batch),
    )


def refused(given: StreamRecord, folder: Path) -> PipelineError:
    with pytest.raises(PipelineError) as caught:
        convert(given, folder)
    assert not [p for p in folder.iterdir() if p.suffix == ".arrow"]
    return caught.value


@pytest.mark.usefixtures("short_runs")
def test_slices_are_the_rows_in_the_files_order(tmp_path: Path) -> None:
    found = convert(record(file_of(tmp_path)), tmp_path)

    assert (found.rows, found.batches, batches_of([found])) == (ROWS, 4, 4)
    assert [found.slice_of(b) for b in range(5)] == [(0, 6), (6, 12), (12, 18), (18, 23), (23, 23)]
    for first, last in [(0, ROWS), (3, 4), (4, 6), (9, 21), (23, 23)]:
        pieces = list(read_rows(found.path, first, last))
        keys = [k for p in pieces for k in p.column("k").to_pylist()]
        assert keys == [None if n == 4 else n for n in range(first, last)]
    whole = next(read_rows(found.path, 0, 1))
    assert whole.schema.names == ["k", "ts"]
    assert whole.schema.field("k").type == pa.int64()
    assert whole.schema.field("ts").type == pa.timestamp("us", tz="UTC")


def test_a_converted_recording_is_not_converted_again(tmp_path: Path) -> None:
    source = file_of(tmp_path)
    first = convert(record(source), tmp_path)
    before = tmp_path.joinpath(first.path).stat().st_mtime_ns
    again = convert(record(source), tmp_path)

    assert again == first
    assert tmp_path.joinpath(first.path).stat().st_mtime_ns == before


def test_a_conversion_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    source = file_of(tmp_path)
    (tmp_path / "r.partial").write_bytes(b"ARROW1")
    found = convert(record(source), tmp_path)
    assert sum(p.num_rows for p in read_rows(found.path, 0, ROWS)) == ROWS


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    error = refused(record(tmp_path / "nowhere.parquet"), tmp_path)
    assert (error.code, error.field) == ("missing-file", "streams.r.source.path")
    assert "nowhere.parquet" in error.message


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    error = refused(record(file_of(tmp_path), k="bigint", colour="string"), tmp_path)
    assert error.code == "missing-column"
    assert "'colour'" in error.message


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        (pa.array(["1", "two"]), "int"),
        (pa.array([1, 1 << 40]), "int"),
        (pa.array([b"\xff\xfe"]), "string"),
    ],
)
def test_values_that_do_not_convert_are_refused(
    values: pa.Array, declared: str, tmp_path: Path
) -> None:
    error = refused(record(file_of(tmp_path, k=values), k=declared), tmp_path)
    assert (error.code, error.field) == ("bad-column", "k")


def test_batches_have_rows(tmp_path: Path) -> None:
    error = refused(record(file_of(tmp_path), None), tmp_path)
    assert error.code == "bad-rows-per-batch"

"""Sources whose rows tasks read themselves: what a batch's offsets make each of them read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.errors import StateError
from anabranch_runtime.recovery.checkpoint import source_offsets
from anabranch_runtime.sources.batch_input import BatchInput, Sources
from anabranch_runtime.sources.blocks import read_pieces
from anabranch_runtime.sources.recordings.recorded import RecordedReader, source_options
from anabranch_runtime.sources.recordings.recording import Recording, convert


def text(**offsets: object) -> str:
    """Offsets as Spark writes them."""
    lines = [f"{name}:{json.dumps(offset)}" for name, offset in offsets.items()]
    return "\n".join(["v2", '{"batchWatermarkMs":0}', *lines])


def test_offsets_are_read_by_the_names_of_their_sources() -> None:
    assert source_offsets(None) == {}
    assert source_offsets(text()) == {}
    nested = {"r-1": {"a:b": ["1-2", 3]}}
    assert source_offsets(text(feeds=nested, x={"logOffset": 1})) == {
        "feeds": nested,
        "x": {"logOffset": 1},
    }
    assert source_offsets(text() + "\nfeeds:-") == {}


@pytest.mark.parametrize("bad", ["", "v1\n{}\n{}", "v2\n{}\nfeeds", "v2\n{}\nfeeds:{", "nothing"])
def test_offsets_of_another_form_are_refused(bad: str) -> None:
    with pytest.raises(StateError) as caught:
        source_offsets(bad)
    assert caught.value.code == "unknown-offsets"
    assert caught.value.remedy


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    home: Path = tmp_path_factory.mktemp("recordings")
    found = []
    for name, rows in (("a", 70_000), ("b", 13), ("c", 0)):
        pq.write_table(pa.table({"k": list(range(rows))}), home / f"{name}.parquet")
        record = StreamRecord(
            name=name,
            columns=(ColumnRecord(name="k", type="bigint"),),
            source=SourceRecord(path=str(home / f"{name}.parquet"), rows_per_batch=5),
        )
        found.append(convert(record, home))
    return found


@given(
    tasks=st.integers(1, 5),
    cuts=st.lists(st.tuples(st.integers(0, 70_000), st.integers(0, 13)), max_size=4),
    extra=st.booleans(),
)
def test_the_shares_of_all_batches_are_every_row_once(
    recordings: list[Recording], tasks: int, cuts: list[tuple[int, int]], extra: bool
) -> None:
    keys = [r.key for r in recordings]
    ends = zip(*(sorted(c) for c in zip(*cuts, strict=True)), strict=True) if cuts else ()
    texts = [
        text(recorded=dict(zip(keys, (*end, 0), strict=True))) for end in (*ends, (70_000, 13))
    ]
    if extra:
        # A first batch that this source was no part of.
        texts.insert(0, text(other={"logOffset": 1}))
    options = source_options(recordings, tasks, "redis://nowhere", "test")
    planned = {"recorded": lambda: RecordedReader(options)}
    read: dict[str, list[int]] = {}
    for before, upto in zip([None, *texts], texts, strict=False):
        found = BatchInput(Sources(planned, tasks), {}, 0, before, upto).shares()
        assert len(found) == tasks
        sizes: dict[str, list[int]] = {}
        for share in found:
            for piece in share:
                sizes.setdefault(piece.stream, []).append(piece.rows)
            for block in read_pieces(share):
                read.setdefault(block.stream, []).extend(block.rows.column("k").to_pylist())
        assert all(max(s) - min(s) <= 1 for s in sizes.values() if len(s) == tasks)
    assert read.pop("a") == list(range(70_000))
    assert read == {"b": list(range(13))}


@pytest.mark.parametrize(("tasks", "loads"), [(1, [2]), (2, [1, 1]), (3, [0, 1, 1])])
def test_streams_with_a_row_each_are_not_one_task_s(
    recordings: list[Recording], tasks: int, loads: list[int]
) -> None:
    keys = [r.key for r in recordings]
    options = source_options(recordings, tasks, "redis://nowhere", "test")
    planned = {"recorded": lambda: RecordedReader(options)}
    upto = text(recorded=dict(zip(keys, (1, 1, 0), strict=True)))
    found = BatchInput(Sources(planned, tasks), {}, 0, None, upto).shares()
    assert sorted(sum(p.rows for p in share) for share in found) == loads

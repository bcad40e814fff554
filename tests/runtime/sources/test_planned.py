"""Tests of sources whose rows tasks read: the ranges that a batch's offsets give to each."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.sources.batch_input import FEW, BatchInput, Sources
from anabranch_runtime.sources.blocks import read_pieces
from anabranch_runtime.sources.recordings.recorded import Recorded
from anabranch_runtime.sources.recordings.recording import Recording, convert
from anabranch_runtime.state.offsets import Offsets


def at(**sources: object) -> Offsets:
    return Offsets(1, sources)


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
    texts = [at(recorded=dict(zip(keys, (*end, 0), strict=True))) for end in (*ends, (70_000, 13))]
    if extra:
        # A first batch that did not include this source.
        texts.insert(0, at(other={"logOffset": 1}))
    planned = {"recorded": Recorded(recordings, tasks, "redis://nowhere", "test")}
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
        if sum(map(sum, sizes.values())) > FEW:
            assert all(max(s) - min(s) <= 1 for s in sizes.values() if len(s) == tasks)
    assert read.pop("a") == list(range(70_000))
    assert read == {"b": list(range(13))}


@pytest.mark.parametrize(("tasks", "loads"), [(1, [2]), (2, [1, 1]), (3, [0, 1, 1])])
def test_streams_with_a_row_each_are_not_one_task_s(
    recordings: list[Recording], tasks: int, loads: list[int]
) -> None:
    keys = [r.key for r in recordings]
    planned = {"recorded": Recorded(recordings, tasks, "redis://nowhere", "test")}
    upto = at(recorded=dict(zip(keys, (1, 1, 0), strict=True)))
    found = planned["recorded"].shares({}, upto.sources["recorded"])
    assert sorted(sum(p.rows for p in share) for share in found) == loads


@pytest.mark.parametrize(("rows", "spread"), [(FEW - 1, False), (FEW + 1, True)])
def test_few_rows_are_one_task_s_and_another_one_s_in_the_next_batch(
    recordings: list[Recording], rows: int, spread: bool
) -> None:
    keys = [r.key for r in recordings]
    planned = {"recorded": Recorded(recordings, 3, "redis://nowhere", "test")}
    upto = at(recorded=dict(zip(keys, (rows, 0, 0), strict=True)))
    for batch in range(4):
        shares = BatchInput(Sources(planned, 3), {}, batch, None, upto).shares()
        counts = [sum(p.rows for p in share) for share in shares]
        assert sum(counts) == rows
        assert [task for task, count in enumerate(counts) if count] == (
            [0, 1, 2] if spread else [batch % 3]
        )

"""Tests of pack files of segments: written completely or not at all, damage noticed, old ones
readable.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract import codec
from anabranch_runtime.errors import StateError
from anabranch_runtime.index import filters
from anabranch_runtime.index.gather import gather_words, places
from anabranch_runtime.index.hash_index import build_index
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.index.matching import described, in_order, match
from anabranch_runtime.storage.segment import (
    ALIGNMENT,
    MAGIC,
    OFFSET_BITS,
    VERSION,
    IndexKey,
    PackWriter,
    Segment,
)
from anabranch_runtime.storage.segment_cache import open_segment
from tests.support.oracles.invariants import check_index

GOLDEN = Path(__file__).parents[1] / "golden"
KEY = IndexKey(("k",), ("bigint",))
#: Keys with a duplicate and a NULL; two batches; unordered times.
KEYS, BATCHES, TIMES = [3, 1, None, 3], [4, 4, 6, 5], [30, 10, 40, 20]


def rows() -> pa.RecordBatch:
    sigma = [b << OFFSET_BITS | i for i, b in enumerate(BATCHES)]
    return pa.record_batch(
        {
            "k": pa.array(KEYS, pa.int32()),
            "s": pa.array(["a", None, "ccc", ""]),
            "#sigma": pa.array(sigma, pa.int64()),
            "#tau": pa.array(TIMES, pa.int64()),
        }
    )


def combinations() -> pa.RecordBatch:
    return pa.record_batch(
        {
            "R.k": pa.array([1, 2], pa.int64()),
            "#sigma:R": pa.array([1 << OFFSET_BITS, 5 << OFFSET_BITS], pa.int64()),
            "#tau:R": pa.array([7, 8], pa.int64()),
            "#sigma:S": pa.array([2 << OFFSET_BITS, 3 << OFFSET_BITS], pa.int64()),
        }
    )


def write(root: Path, name: str = "segments/one.pack", *, indexed: bool = True) -> list[Segment]:
    with PackWriter(root, name) as writer:
        index = build_index(key_vector([rows().column("k")], KEY.types))
        writer.add(
            rows(),
            store="R/1",
            partition=0,
            members=(),
            indexes=[(KEY, index)] if indexed else [],
        )
        writer.add(combinations(), store="RS/1", partition=2, members=("R", "S"), indexes=[])
    return writer.segments


def test_what_is_written_is_read(tmp_path: Path) -> None:
    base, joined = write(tmp_path)

    assert open_segment(str(tmp_path), base).batch.equals(rows())
    assert open_segment(str(tmp_path), joined).batch.equals(combinations())
    assert (base.rows, base.first_batch, base.last_batch) == (4, 4, 6)
    assert (base.tau_min, base.tau_max) == ((10,), (40,))
    # A combination belongs to the batch of its last tuple; S has no event time.
    assert (joined.first_batch, joined.last_batch) == (2, 5)
    assert (joined.tau_min, joined.tau_max) == ((7, None), (8, None))
    assert base.bytes <= (tmp_path / base.path).stat().st_size
    for segment in (base, joined):
        assert codec.loads(codec.dumps(segment), Segment) == segment


def test_the_file_is_laid_out_as_documented(tmp_path: Path) -> None:
    segments = write(tmp_path)
    content = (tmp_path / segments[0].path).read_bytes()

    assert content[:8] == content[-8:] == MAGIC
    length = int.from_bytes(content[-20:-12], "little")
    footer = json.loads(content[-20 - length : -20])
    assert footer["version"] == VERSION
    assert [codec.from_json(s, Segment) for s in footer["segments"]] == segments
    blobs = [segments[0].data, *segments[0].indexes[0][2], segments[1].data]
    assert all(offset % ALIGNMENT == 0 for offset, _, _ in blobs)
    ends = [offset + size for offset, size, _ in blobs]
    assert all(end <= start for end, (start, _, _) in zip(ends, blobs[1:], strict=False))


def test_columns_are_read_in_place(tmp_path: Path) -> None:
    base = write(tmp_path)[0]
    before = pa.total_allocated_bytes()
    reader = open_segment(str(tmp_path), base)
    taus = places([reader.place("#tau")])
    assert gather_words(taus, None, np.arange(len(TIMES), dtype=np.int32)).tolist() == TIMES
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("empty", [True, False])
def test_an_interrupted_pack_leaves_nothing_under_its_name(tmp_path: Path, empty: bool) -> None:
    def fail() -> Generator[None, None, None]:
        with PackWriter(tmp_path, "segments/x.pack") as writer:
            assert [p.name for p in (tmp_path / "segments").iterdir()] == ["x.pack.partial"]
            if not empty:
                writer.add(rows(), store="R", partition=0, members=(), indexes=[])
            yield

    steps = fail()
    next(steps)
    with pytest.raises(RuntimeError, match="died"):
        steps.throw(RuntimeError("died"))
    assert list((tmp_path / "segments").iterdir()) == []


def test_a_crash_leaves_a_partial_file_only(tmp_path: Path) -> None:
    writer = PackWriter(tmp_path, "segments/x.pack")
    writer.add(rows(), store="R", partition=0, members=(), indexes=[])
    writer._file.flush()
    # The process dies before it closes the writer.
    assert [p.name for p in (tmp_path / "segments").iterdir()] == ["x.pack.partial"]
    writer._file.close()


def test_a_pack_without_segments_is_not_kept(tmp_path: Path) -> None:
    with PackWriter(tmp_path, "segments/x.pack"):
        pass
    assert list((tmp_path / "segments").iterdir()) == []


@pytest.mark.parametrize("blob", ["data", "hashes", "rows", "starts", "filter"])
def test_a_flipped_byte_is_found(blob: str, tmp_path: Path) -> None:
    with patch.object(filters, "LEAST", 1):
        base = write(tmp_path)[0]
    blobs = dict(zip(("hashes", "rows", "starts", "filter"), base.indexes[0][2], strict=True))
    blobs["data"] = base.data
    open_segment(str(tmp_path), base).verify()
    shutil.copytree(tmp_path / "segments", tmp_path / "damaged" / "segments")
    path = tmp_path / "damaged" / base.path
    content = bytearray(path.read_bytes())
    content[blobs[blob][0] + blobs[blob][1] // 2] ^= 1
    path.write_bytes(content)

    with pytest.raises(StateError) as caught:
        open_segment(str(tmp_path / "damaged"), base).verify()
    assert caught.value.code == "damaged-segment"
    assert str(blobs[blob][0]) in caught.value.message


def test_an_index_built_later_equals_the_stored_one(tmp_path: Path) -> None:
    stored = write(tmp_path, "segments/a.pack")[0]
    plain = write(tmp_path, "segments/b.pack", indexed=False)[0]
    asked: list[str] = []

    def columns() -> list[pa.Array]:
        asked.append("columns")
        return [open_segment(str(tmp_path), plain).column("k")]

    kept = open_segment(str(tmp_path), stored).index(KEY, columns)
    assert asked == []
    built = open_segment(str(tmp_path), plain).index(KEY, columns)
    assert open_segment(str(tmp_path), plain).index(KEY, columns) is built
    assert asked == ["columns"]
    for index in (kept, built):
        check_index(index)
    assert np.array_equal(kept.filter, built.filter)
    assert np.array_equal(kept.hashes, built.hashes)
    assert np.array_equal(kept.rows, built.rows)
    assert np.array_equal(kept.starts, built.starts)
    assert kept.unique is built.unique is False


def test_packs_stay_readable(tmp_path: Path) -> None:
    """:func:`write` wrote ``golden/segments.pack``; other bytes need a new format version (ADR
    0056).
    """
    content = (GOLDEN / "segments.pack").read_bytes()
    length = int.from_bytes(content[-20:-12], "little")
    footer = json.loads(content[-20 - length : -20])
    base, joined = (codec.from_json(s, Segment) for s in footer["segments"])
    assert footer["version"] == VERSION
    write(tmp_path, "segments.pack")
    assert (tmp_path / "segments.pack").read_bytes() == content

    for segment in (base, joined):
        open_segment(str(GOLDEN), segment).verify()
    assert open_segment(str(GOLDEN), base).batch.to_pydict() == rows().to_pydict()
    assert open_segment(str(GOLDEN), joined).batch.to_pydict() == combinations().to_pydict()
    reader = open_segment(str(GOLDEN), base)
    index = reader.index(KEY, lambda: pytest.fail("the index is in the file"))
    assert len(index.filter) == 0
    probes = key_vector([pa.array([3, 2, 1])], KEY.types).hashes
    found = match(in_order(probes), described([index]))
    pairs = sorted(zip(found.positions.tolist(), found.rows.tolist(), strict=True))
    assert pairs == [(0, 0), (0, 3), (2, 1)]

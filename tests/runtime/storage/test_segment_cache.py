"""Tests of the cache of open packs: packs are open as long as batches need them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.segment import SIGMA, PackWriter, Segment
from anabranch_runtime.storage.segment_cache import close_all, keep_open, open_segment


def write(root: Path, name: str, *values: int) -> list[Segment]:
    """Write a pack with one segment per value."""
    with PackWriter(root, f"segments/{name}.pack") as writer:
        for value in values:
            rows = pa.record_batch({"k": [value], SIGMA: pa.array([0], pa.int64())})
            writer.add(rows, store="s", partition=0, members=(), indexes=())
    return writer.segments


def mapped(root: Path) -> set[str]:
    """Return the packs below ``root`` that are mapped by this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5].removesuffix(" (deleted)") for line in lines if "/" in line}
    return {Path(p).stem for p in paths if p.startswith(str(root))}


def test_a_pack_is_mapped_once_and_let_go_of_when_no_batch_can_ask(tmp_path: Path) -> None:
    root = str(tmp_path)
    old, new = write(tmp_path, "old", 1, 2), write(tmp_path, "new", 3)
    readers = [open_segment(root, s) for s in (*old, *new)]
    assert [r.column("k").to_pylist() for r in readers] == [[1], [2], [3]]
    assert all(open_segment(root, s) is r for s, r in zip((*old, *new), readers, strict=True))
    assert mapped(tmp_path) == {"old", "new"}

    column = readers[0].column("k")
    del readers
    keep_open(root, {"s": new})
    (tmp_path / old[0].path).unlink()
    # Open readers may continue.
    assert mapped(tmp_path) == {"old", "new"}
    assert column.to_pylist() == [1]
    del column
    assert mapped(tmp_path) == {"new"}
    with pytest.raises(StateError, match="can't be read"):
        open_segment(root, old[0])
    close_all()
    assert mapped(tmp_path) == set()


def test_other_states_are_not_touched(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (first,), (second,) = write(one, "a", 1), write(two, "a", 2)
    assert open_segment(str(one), first).column("k").to_pylist() == [1]
    reader = open_segment(str(two), second)
    keep_open(str(one), {})
    assert open_segment(str(two), second) is reader
    close_all()

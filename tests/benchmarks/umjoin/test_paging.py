"""Tests that the ``lsm`` backend reads segments page by page if they exceed its memory limit."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch_runtime.storage import segment_cache as opened_segments
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, IndexKey
from benchmarks.umjoin.backends.interface import BackendKind, TableSpec
from tests.support.surroundings.backends import opened, pairs


def random_maps(folder: Path) -> list[bool]:
    """Return for each mapped file in ``folder`` whether the mapping is advised for random access
    (``rr``).
    """
    found, inside = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0] and ":" not in line.split(" ")[0]:
            inside = str(folder) in line
        elif inside and line.startswith("VmFlags:"):
            found.append("rr" in line.split())
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/smaps is Linux's")
def test_mappings_follow_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = IndexKey(("k",), ("bigint",))
    spec = TableSpec(pa.schema([("k", pa.int64())]), (key,))
    fit = True
    monkeypatch.setattr(opened_segments, "fits", lambda size: fit)
    with opened(tmp_path, {"t": spec}, BackendKind.LSM) as backend:
        table = backend.tables["t"]
        for batch in range(6):
            offsets = pa.array(range(10), pa.int64())
            sigma = pa.array([(batch << OFFSET_BITS) + n for n in range(10)], pa.int64())
            table.insert(pa.record_batch([sigma, offsets], names=[SIGMA, "k"]))
            fit = batch not in (2, 3)
            backend.commit(batch)
            assert len(pairs(table, key, [offsets])) == 10 * (batch + 1)
            if batch:
                assert random_maps(tmp_path) == [not fit] * (batch + 1)

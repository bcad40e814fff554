"""Tests that mapped state is read page by page if it exceeds memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from anabranch_runtime.storage import paging
from anabranch_runtime.storage.paging import fits, map_file

GIB = 1 << 30


def system(
    folder: Path, available: int | None, cgroup: str, groups: Mapping[str, Mapping[str, str]]
) -> tuple[Path, Path]:
    """Write a ``/proc`` and a ``/sys/fs/cgroup`` with these limits."""
    proc, tree = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True, exist_ok=True)
    if available is not None:
        (proc / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:  {available // 1024} kB\n")
    (proc / "self" / "cgroup").write_text(cgroup)
    for name, files in groups.items():
        (tree / name).mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (tree / name / file).write_text(text)
    return proc, tree


V1 = {"memory.limit_in_bytes": str(2 * GIB), "memory.stat": f"cache 5\ntotal_rss {GIB}\n"}
V1_TOP = {"memory.limit_in_bytes": str(1 << 62), "memory.stat": f"total_rss {6 * GIB}\n"}
V2 = {"memory.max": f"{2 * GIB}\n", "memory.stat": f"anon {GIB}\nfile 12\n"}
V2_TOP = {"memory.max": "max\n", "memory.stat": f"anon {6 * GIB}\n"}


@pytest.mark.parametrize(
    ("available", "cgroup", "groups", "most"),
    [
        (8 * GIB, "", {}, 4 * GIB),
        (None, "", {}, None),
        (8 * GIB, "4:memory:/job/one\n2:cpu:/x\n", {"memory/job/one": V1}, GIB // 2),
        (8 * GIB, "4:memory:/job/one\n", {"memory": V1_TOP, "memory/job": V1}, GIB // 2),
        (8 * GIB, "0::/job/one\n", {"": V2_TOP, "job": V2}, GIB // 2),
        (8 * GIB, "0::/elsewhere\n", {"": V2}, GIB // 2),
        (GIB, "0::/job\n", {"job": V2_TOP}, GIB // 2),
        (8 * GIB, "0::/\n", {"": {"memory.max": f"{GIB}"}}, 4 * GIB),
    ],
)
def test_what_fits_is_up_to_the_host_and_every_control_group(
    available: int | None,
    cgroup: str,
    groups: dict[str, dict[str, str]],
    most: int | None,
    tmp_path: Path,
) -> None:
    proc, tree = system(tmp_path, available, cgroup, groups)
    assert fits(most or 1 << 60, proc, tree)
    if most is not None:
        assert not fits(most + 1024, proc, tree)


def test_memory_is_looked_at_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 5.25
    monkeypatch.setattr(paging, "time", SimpleNamespace(monotonic=lambda: clock))
    proc, tree = system(tmp_path, 8 * GIB, "", {})
    assert fits(3 * GIB, proc, tree)
    system(tmp_path, 4 * GIB, "", {})
    clock = 5.75
    assert fits(3 * GIB, proc, tree)
    clock = 6.0
    assert not fits(3 * GIB, proc, tree)


def test_nobody_knows_and_nothing_breaks(tmp_path: Path) -> None:
    assert fits(1 << 60, tmp_path / "none", tmp_path / "none")


def test_an_empty_file_is_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert map_file(tmp_path / "empty").buffer.size == 0

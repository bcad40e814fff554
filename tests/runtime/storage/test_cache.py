"""Tests that a host's cache keeps what the host needs, and drops the rest."""

from __future__ import annotations

import os
import time
from pathlib import Path

from anabranch_runtime.exchange.host import host_id
from anabranch_runtime.storage.cache import AGE, sweep


def test_what_nobody_needs_leaves_at_once_and_what_may_be_named_yet_later(tmp_path: Path) -> None:
    host_id(tmp_path)
    (tmp_path / "segments").mkdir()
    (tmp_path / "staging/old").mkdir(parents=True)

    def pack(name: str, seconds: float = 0) -> str:
        path = tmp_path / "segments" / f"{name}.pack"
        path.touch()
        os.utime(path, (time.time() - seconds,) * 2)
        return f"segments/{name}.pack"

    needed = {pack("0000000003-a-0-base", AGE + 9), pack("merged-of-ours", AGE + 9)}
    others = {pack("merged-of-others"), pack("0000000004-a-1-base")}
    pack("0000000004-failed-0-base")
    running = {pack("0000000005-b-0-base"), pack("merged-just-now")}
    pack("merged-never-named", AGE + 9)
    (tmp_path / "manifest").mkdir()
    for number in (3, 4, 5):
        (tmp_path / "manifest" / f"{number:012d}.json").touch()
    sweep(tmp_path, needed, others, 5, 4)
    left = {f"segments/{p.name}" for p in (tmp_path / "segments").iterdir()}
    assert left == needed | running
    assert [int(p.stem) for p in sorted((tmp_path / "manifest").iterdir())] == [4, 5]
    assert (tmp_path / "staging/old").exists()
    assert (tmp_path / "host").exists()

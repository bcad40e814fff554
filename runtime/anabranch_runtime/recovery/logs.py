"""Checks of the sources' logs below the state: entries that offsets refer to must not change.

The feed of files appends to ``files/*.jsonl``. Spark's own sources of files write one file per
entry below ``checkpoint/sources``, and at intervals a ``.compact`` file that replaces all entries
before it. When a batch begins, the journal records each log's length and CRC-32. At the next start
the logs must begin with the same bytes. Entries added later are not checked, as no batch that has
begun refers to them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.verify import REMEDY

#: Log (name below the state directory) -> its length and CRC-32.
Prefixes = dict[str, tuple[int, int]]


def prefixes(root: Path, known: Mapping[str, tuple[int, int]]) -> Prefixes:
    """Return length and CRC-32 of each log below ``root``; only additions to ``known`` are read."""
    found: Prefixes = {}
    for path in _logs(root):
        name = str(path.relative_to(root))
        length, crc = known.get(name, (0, 0))
        size = path.stat().st_size
        if size < length:
            length, crc = 0, 0
        if size > length:
            with path.open("rb") as file:
                file.seek(length)
                added = file.read(size - length)
            length, crc = length + len(added), zlib.crc32(added, crc)
        found[name] = (length, crc)
    return found


def check_logs(root: Path, expected: Mapping[str, tuple[int, int]]) -> None:
    """Check that the logs below ``root`` still begin with their recorded contents.

    Raises:
        StateError: ``damaged-log``.
    """
    compact = {p.parent: _number(p) for p in _logs(root) if p.suffix == ".compact"}
    for name, (length, crc) in expected.items():
        path = root / name
        if path.exists():
            with path.open("rb") as file:
                begins = file.read(length)
            whole = len(begins) == length and zlib.crc32(begins) == crc
        else:
            # Spark deletes the entries that a later ``.compact`` file contains.
            whole = path.suffix != ".jsonl" and _number(path) <= compact.get(path.parent, -1)
        if not whole:
            raise StateError(
                "damaged-log",
                f"{name} has changed, so it is no longer known which files have been read",
                remedy=REMEDY,
            )


def _logs(root: Path) -> list[Path]:
    found = sorted((root / "files").glob("*.jsonl"))
    sources = root / "checkpoint" / "sources"
    for folder in sorted(sources.iterdir()) if sources.is_dir() else ():
        entries = [p for p in folder.iterdir() if p.name.partition(".")[0].isdecimal()]
        compact = max((_number(p) for p in entries if p.suffix == ".compact"), default=-1)
        found += [p for p in entries if _number(p) > compact or p.suffix == ".compact"]
    return found


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])

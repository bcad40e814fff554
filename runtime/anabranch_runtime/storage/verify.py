"""Check that the packs that a state names are present and unchanged.

Footers, lengths and descriptors are compared at every start, with a few reads per pack. The full
check compares the checksums of all blobs and reads every byte: about a second per two gigabytes and
core.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from anabranch_contract import codec
from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.depth import Verify
from anabranch_runtime.storage.documents import unknown_version
from anabranch_runtime.storage.segment import MAGIC, VERSION, Segment

#: Number of bytes after the footer: its length, its checksum, the magic.
TAIL = 8 + 4 + len(MAGIC)
#: Remedy in errors for missing or damaged packs without which no kept manifest can be restored.
BACKUP = "restore state and results from one backup"
REMEDY = (
    f"{BACKUP}, or start again from the sources with an empty state directory, empty results and "
    "another namespace"
)


def verify_packs(
    root: Path, segments: Iterable[Segment], depth: Verify, known: set[Segment] | None = None
) -> None:
    """Check the packs of ``segments`` except those in ``known``, to which they are added.

    Raises:
        StateError: ``missing-pack``, ``damaged-pack`` or ``unknown-version``, naming the file.
    """
    each_pack(segments, lambda path, parts: _verify(root, path, parts, depth), known)


def each_pack(
    segments: Iterable[Segment],
    check: Callable[[str, list[Segment]], None],
    known: set[Segment] | None = None,
) -> None:
    """Call ``check`` for every pack of ``segments``, several in parallel. Segments in ``known`` are
    skipped; the others are added to it."""
    fresh = [s for s in segments if known is None or s not in known]
    packs: dict[str, list[Segment]] = {}
    for segment in fresh:
        packs.setdefault(segment.path, []).append(segment)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda path: check(path, packs[path]), sorted(packs)))
    if known is not None:
        known.update(fresh)


def verify_file(file: Path, path: str, segments: list[Segment], depth: Verify) -> None:
    """Check that the pack ``path`` in ``file`` has ``segments``, and that these are intact; if
    ``segments`` is empty, check all segments of the pack.

    Raises:
        FileNotFoundError: the file does not exist.
        StateError: ``damaged-pack`` or ``unknown-version``.
    """
    try:
        with (
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as view,
        ):
            _compare_footer(path, view, segments, depth)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as cause:
        raise _damaged(path, str(cause)) from cause


def verify_footer(
    path: str, size: int, read: Callable[[int, int], bytes], segments: Iterable[Segment]
) -> None:
    """Check footer and lengths of a pack of ``size`` bytes; ``read`` takes offset and count.

    Raises:
        StateError: ``damaged-pack`` or ``unknown-version``.
    """
    written, _ = _footer(path, size, read)
    _has(path, written, segments)


def _verify(root: Path, path: str, segments: list[Segment], depth: Verify) -> None:
    try:
        verify_file(root / path, path, segments, depth)
    except FileNotFoundError as cause:
        raise StateError("missing-pack", f"{path} is missing", remedy=REMEDY) from cause


def _compare_footer(path: str, view: memoryview, segments: list[Segment], depth: Verify) -> None:
    written, end = _footer(path, len(view), lambda at, count: bytes(view[at : at + count]))
    _has(path, written, segments)
    if depth is not Verify.FULL:
        return
    _check_gaps(path, view, written, end)
    for segment in segments or written:
        for offset, count, crc in segment.blobs:
            if zlib.crc32(view[offset : offset + count]) != crc:
                raise _damaged(path, f"the data at byte {offset} do not match their checksum")


def _footer(
    path: str, size: int, read: Callable[[int, int], bytes]
) -> tuple[frozenset[Segment], int]:
    """Return the segments in a pack's footer, and the footer's offset."""
    tail = read(size - TAIL, TAIL) if size >= len(MAGIC) + TAIL else b""
    if tail[-len(MAGIC) :] != MAGIC or read(0, len(MAGIC)) != MAGIC:
        raise _damaged(path, "it does not begin and end with the magic bytes of a pack")
    length = int.from_bytes(tail[:8], "little")
    if length > size - TAIL - len(MAGIC):
        raise _damaged(path, "its footer is longer than the file")
    start = size - TAIL - length
    footer = read(start, length)
    if zlib.crc32(footer) != int.from_bytes(tail[8:12], "little"):
        raise _damaged(path, "its footer does not match its checksum")
    document = json.loads(footer)
    if document["version"] != VERSION:
        raise unknown_version(path, document["version"], VERSION)
    return frozenset(codec.from_json(s, Segment) for s in document["segments"]), start


def _has(path: str, written: frozenset[Segment], segments: Iterable[Segment]) -> None:
    if any(segment not in written for segment in segments):
        raise _damaged(path, "the manifest and its footer contradict each other")


def _check_gaps(path: str, view: memoryview, segments: Iterable[Segment], end: int) -> None:
    """Check that the gaps between blobs, and before the footer at ``end``, are zeros: a flipped bit
    in a gap does no harm, but is a sign that the disk is failing."""
    at = len(MAGIC)
    blobs = sorted(blob for segment in segments for blob in segment.blobs)
    for offset, count, _ in (*blobs, (end, 0, 0)):
        if bytes(view[at:offset]).strip(b"\0"):
            raise _damaged(path, f"the gap before byte {offset} is not all zeros")
        at = offset + count


def _damaged(path: str, why: str) -> StateError:
    return StateError("damaged-pack", f"{path} is damaged: {why}", remedy=REMEDY)

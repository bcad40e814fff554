"""Whether the packs that a state names are there and are what was written.

Footers, lengths and descriptors are compared at every start: a few reads per pack. That every byte
is what was written is told by the checksums of the blobs, which takes reading all of it (about a
second for every two gigabytes and core).
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TYPE_CHECKING

from anabranch_runtime.errors import StateError
from anabranch_runtime.state.segment import MAGIC, VERSION, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: Bytes after the footer: its length, its checksum, the magic.
TAIL = 8 + 4 + len(MAGIC)
#: What can be done about packs that no manifest can do without.
REMEDY = (
    "restore state, checkpoint and results from one backup, or start again from the sources with "
    "an empty state directory, empty results and another namespace"
)


class Verify(StrEnum):
    """How much is read at a start: ``FULL`` every byte, ``FOOTERS`` only what tells lengths."""

    FULL = "full"
    FOOTERS = "footers"


def verify_packs(
    root: Path, segments: Iterable[Segment], depth: Verify, known: set[Segment] | None = None
) -> None:
    """Check the packs of ``segments``; those in ``known`` are passed over, the others join it.

    Raises:
        StateError: ``missing-pack``, ``damaged-pack`` or ``unknown-version``, naming the file.
    """
    fresh = [s for s in segments if known is None or s not in known]
    packs: dict[str, list[Segment]] = {}
    for segment in fresh:
        packs.setdefault(segment.path, []).append(segment)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda path: _verify(root, path, packs[path], depth), sorted(packs)))
    if known is not None:
        known.update(fresh)


def _verify(root: Path, path: str, segments: list[Segment], depth: Verify) -> None:
    try:
        with (
            (root / path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as view,
        ):
            _compare(path, view, segments, depth)
    except FileNotFoundError as cause:
        raise StateError("missing-pack", f"{path} is missing", remedy=REMEDY) from cause
    except (OSError, ValueError) as cause:
        raise _damaged(path, str(cause)) from cause


def _compare(path: str, view: memoryview, segments: list[Segment], depth: Verify) -> None:
    size = len(view)
    if size < len(MAGIC) + TAIL or view[: len(MAGIC)] != MAGIC or view[-len(MAGIC) :] != MAGIC:
        raise _damaged(path, "it does not begin and end as a pack does")
    length = int.from_bytes(view[size - TAIL : size - TAIL + 8], "little")
    if length > size - TAIL - len(MAGIC):
        raise _damaged(path, "its footer is longer than the file")
    footer = bytes(view[size - TAIL - length : size - TAIL])
    if zlib.crc32(footer) != int.from_bytes(view[-len(MAGIC) - 4 : -len(MAGIC)], "little"):
        raise _damaged(path, "its footer does not match its checksum")
    document = json.loads(footer)
    if document["version"] not in range(1, VERSION + 1):
        raise StateError(
            "unknown-version",
            f"{path} has version {document['version']}; this release reads versions "
            f"up to {VERSION}",
            remedy="start the release that wrote the state, or a later one",
        )
    written = {Segment.from_json(s) for s in document["segments"]}
    if depth is Verify.FULL:
        _check_gaps(path, view, written, size - TAIL - length)
    for segment in segments:
        if segment not in written:
            raise _damaged(path, "the manifest tells something else of it than its footer")
        for offset, count, crc in segment.blobs if depth is Verify.FULL else ():
            if zlib.crc32(view[offset : offset + count]) != crc:
                raise _damaged(path, f"what begins at byte {offset} does not match its checksum")


def _check_gaps(path: str, view: memoryview, segments: Iterable[Segment], end: int) -> None:
    """Nothing but zeros lies between blobs, and before the footer at ``end``: what is flipped there
    does no harm, but says that the disk does.
    """
    at = len(MAGIC)
    blobs = sorted(blob for segment in segments for blob in segment.blobs)
    for offset, count, _ in (*blobs, (end, 0, 0)):
        if bytes(view[at:offset]).strip(b"\0"):
            raise _damaged(path, f"there is something in the gap before byte {offset}")
        at = offset + count


def _damaged(path: str, why: str) -> StateError:
    return StateError("damaged-pack", f"{path} is damaged: {why}", remedy=REMEDY)

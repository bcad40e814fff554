"""The state directory as a cache before an object store: fetching, eviction, removal of packs.

Packs (files with segments of stores) never change. A pack is fetched when it is opened: to a
temporary name, compared with all its checksums, then renamed. So a file under a pack's name is
always complete, whichever process fetched it, and damaged or truncated objects are detected before
they are read.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.depth import Verify
from anabranch_runtime.storage.object_store import Remote
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.storage.verify import REMEDY, verify_file


@dataclass(frozen=True, slots=True)
class Cached:
    """A pack file in the cache: name, size in bytes, time of its last opening (nanoseconds)."""

    name: str
    bytes: int
    opened: int


def evictions(cached: Iterable[Cached], limit: int) -> list[str]:
    """Return the packs to evict so that at most ``limit`` bytes stay: the least recently opened.

    >>> a, b, c = (Cached(name, 10, opened) for name, opened in (("a", 3), ("b", 1), ("c", 2)))
    >>> evictions([a, b, c], 25)
    ['b']
    >>> evictions([a, b, c], 9)
    ['b', 'c', 'a']
    """
    oldest = sorted(cached, key=lambda c: (c.opened, c.name))
    surplus = sum(c.bytes for c in oldest) - limit
    gone = []
    for pack in oldest:
        if surplus <= 0:
            break
        gone.append(pack.name)
        surplus -= pack.bytes
    return gone


def fetch(
    remote: Remote, root: Path, path: str, wanted: Iterable[Segment] = (), *, keep: bool = True
) -> int:
    """Fetch the pack ``path`` from the object store into ``root``, if its checksums match.

    Args:
        remote: the object store.
        root: the state directory.
        path: the pack's path relative to ``root``.
        wanted: segments that the pack's footer must contain.
        keep: whether to keep the pack; False: only read and check it.

    Returns:
        The pack's size in bytes.

    Raises:
        StateError: ``missing-pack``, ``damaged-pack`` or ``unknown-version``; or the store does
            not answer.
    """
    final = root / path
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(f"{final.name}.{uuid.uuid4().hex}.partial")
    try:
        remote.download(path, partial)
        name_there = f"{path} of {remote.where}"
        verify_file(partial, name_there, list(wanted), Verify.FOOTERS)
        verify_file(partial, name_there, [], Verify.FULL)
        size = partial.stat().st_size
        if keep:
            partial.rename(final)
    except FileNotFoundError as cause:
        raise missing(remote, path) from cause
    finally:
        partial.unlink(missing_ok=True)
    return size


def missing(remote: Remote, path: str) -> StateError:
    """Return the error for a pack that is neither in the directory nor in the object store."""
    return StateError("missing-pack", f"{path} is not in {remote.where}", remedy=REMEDY)


#: Seconds since its last use after which an unneeded file is deleted; files of a running batch have
#: been used more recently.
AGE = 600.0


def sweep(
    cache: Path, needed: Collection[str], spent: Collection[str], batch: int, first: int
) -> None:
    """Delete files of a host's cache that no batch needs any more.

    Manifests before ``first`` (the oldest that ``batch``'s incremental manifest builds on) are
    deleted, and of other files that are not ``needed``: at once, the ``spent`` ones and packs of
    batches before ``batch``; after :data:`AGE` seconds without use, packs of merges, staged results
    and input.
    """
    for path in cache.glob("manifest/*.json"):
        if path.stem.isdecimal() and int(path.stem) < first:
            path.unlink(missing_ok=True)
    now = time.time()
    for pattern in ("segments/*", "staging/*", "recordings/*", "ingest/*/*"):
        for path in cache.glob(pattern):
            name = path.relative_to(cache).as_posix()
            if name in needed:
                continue
            number = path.name.partition("-")[0] if path.suffix == ".pack" else ""
            gone = name in spent or (number.isdecimal() and int(number) < batch)
            try:
                if not gone and now - path.stat().st_mtime <= AGE:
                    continue
            except FileNotFoundError:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

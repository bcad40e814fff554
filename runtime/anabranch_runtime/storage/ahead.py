"""Prefetching of packs (files with segments of stores) from the object store.

A host to which partitions are newly assigned needs all their packs at once, and an object store
takes long for each pack. So these packs are fetched in parallel before the batch begins, and packs
for the next assignment are fetched by a background thread of low priority (:class:`Prefetcher`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.segment import Segment

#: Number of packs fetched in parallel.
AT_ONCE = 8
_NICE = 10


def missing(root: str, segments: Iterable[Segment]) -> list[Segment]:
    """Return one segment of each pack that the state directory ``root`` lacks."""
    packs = {segment.path: segment for segment in segments}
    return [s for path, s in sorted(packs.items()) if not (Path(root) / path).exists()]


def bring(root: str, wanted: Iterable[Segment], advanced: Callable[[], None]) -> None:
    """Fetch the packs of ``wanted`` segments in parallel; call ``advanced`` after each pack.

    Raises:
        StateError: a pack is missing in the object store, or damaged.
    """
    keeper = durable(root)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch") as pool:
        for _ in pool.map(keeper.fetch, wanted):
            advanced()


@dataclass(slots=True)
class Prefetcher:
    """Background thread that fetches packs which a host will need; at most one runs per process."""

    _thread: threading.Thread | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def begin(self, root: str, segments: Iterable[Segment]) -> None:
        """Begin to fetch the missing packs of ``segments``, unless a fetch is running."""
        if self._thread is not None and self._thread.is_alive():
            return
        wanted = missing(root, segments)
        if not wanted:
            return
        self._over.clear()
        self._thread = threading.Thread(
            target=self._run, args=(root, wanted), name="fetch-ahead", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop after the pack that is being fetched, and wait for it; readers fetch the others."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, root: str, wanted: list[Segment]) -> None:
        give_way()
        keeper = durable(root)
        for segment in wanted:
            if self._over.is_set():
                return
            try:
                if not (Path(root) / segment.path).exists():
                    keeper.fetch(segment)
            except (StateError, OSError):
                # The pack may have been merged and deleted. If not, its reader will get the error.
                continue


def give_way() -> None:
    """Give the calling background thread the lowest priority; on Linux, it is per thread."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
    except (OSError, AttributeError):
        return


#: This process's prefetcher.
AHEAD = Prefetcher()

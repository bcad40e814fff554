"""Uploads of a task's packs to the object store, in the background."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from anabranch_runtime.faults import Point, reach
from anabranch_runtime.storage.durable import durable


@dataclass(slots=True)
class Uploads:
    """Uploads of packs below ``root``, one after the other; nothing where no store is behind it."""

    root: str
    _pool: ThreadPoolExecutor | None = None
    _begun: list[Future[None]] = field(default_factory=list)

    def add(self, pack: str) -> None:
        """Begin to upload a pack that has been written."""
        behind = durable(self.root)
        if behind.uri is None:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="upload")
        self._begun.append(self._pool.submit(behind.upload, pack))

    def finish(self) -> None:
        """Wait until all of them are durable.

        Raises:
            StateError: one can't be written.
        """
        for upload in self._begun:
            upload.result()
        if self._begun:
            reach(Point.UPLOADED)

    def close(self) -> None:
        """Cancel the uploads that have not begun; wait for the others."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

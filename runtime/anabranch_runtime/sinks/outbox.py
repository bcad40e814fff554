"""Outbox of results that wait for a failing external sink.

A failing sink (a broker that is down, a full disk) must not lose results or stop other queries. Its
results are parked in ``.outbox/<query>/<batch>/`` in the results directory and made durable with
the published results, and the batch commits. Parked batches are delivered later, in order, before
any newer batch.

If a batch does not commit, it is repeated, so its parked results are deleted when the outbox is
opened again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from anabranch_runtime.sinks.delivery import Delivery

_DESCRIPTION = "delivery.json"
_UNFINISHED = ".unfinished"


class Outbox:
    """Store of the parked deliveries of all queries."""

    def __init__(self, directory: Path, next_batch: int) -> None:
        """Open the outbox, and delete results parked for ``next_batch`` and later batches."""
        self._directory = directory
        self._waiting: dict[str, list[int]] = {}
        for folder in sorted(directory.glob("*/*")):
            if folder.name == _UNFINISHED or int(folder.name) >= next_batch:
                shutil.rmtree(folder)
            else:
                self._waiting.setdefault(folder.parent.name, []).append(int(folder.name))

    def queries(self) -> tuple[str, ...]:
        """Return the queries with parked results."""
        return tuple(self._waiting)

    def waiting(self, query: str) -> tuple[int, ...]:
        """Return the parked batches of a query, oldest first."""
        return tuple(self._waiting.get(query, ()))

    def park(self, delivery: Delivery) -> tuple[Path, ...]:
        """Park a delivery: move its files into the outbox and return their new paths."""
        query = self._directory / delivery.query
        target, draft = query / f"{delivery.batch:010d}", query / _UNFINISHED
        for leftover in (target, draft):
            shutil.rmtree(leftover, ignore_errors=True)
        draft.mkdir(parents=True)
        files = [
            file.rename(draft / f"{number:05d}.parquet")
            for number, file in enumerate(delivery.files)
        ]
        (draft / _DESCRIPTION).write_text(delivery.describe())
        draft.rename(target)
        batches = self._waiting.setdefault(delivery.query, [])
        self._waiting[delivery.query] = sorted({*batches, delivery.batch})
        return tuple(target / file.name for file in files)

    def oldest(self, query: str) -> Delivery:
        """Return the oldest parked delivery of a query."""
        folder = self._directory / query / f"{self._waiting[query][0]:010d}"
        files = tuple(sorted(folder.glob("*.parquet")))
        return Delivery.from_text((folder / _DESCRIPTION).read_text(), files)

    def remove(self, delivery: Delivery) -> None:
        """Delete a parked delivery, if it exists."""
        batches = self._waiting.get(delivery.query, [])
        if delivery.batch not in batches:
            return
        folder = self._directory / delivery.query
        done = (folder / f"{delivery.batch:010d}").rename(folder / _UNFINISHED)
        shutil.rmtree(done)
        batches.remove(delivery.batch)
        if not batches:
            del self._waiting[delivery.query]

"""Outbox of results that wait for their sink: results of a failing sink, and groups of results.

A failing sink (a broker that is down, a full disk) must not cause the loss of results or stop other
queries. Its results are parked in ``.outbox/<query>/<batch>/`` in the results directory and made
durable with the published results, and the batch commits. Parked batches are delivered later, in
order, before any newer batch. If a batch does not commit, it is repeated, so its parked results are
deleted when the outbox is opened again.

A group (``gathered``) has the folder ``.outbox/<query>/<first>..<last>/``. Its batches were
committed when it was formed, so it stays if the state is rolled back; repetitions of batches up to
its last one add no results. A delivered group's folder stays too, without the file, as the record
of how far results were delivered, until a later group is delivered.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from anabranch_runtime.recovery.journal import REMEMBERED
from anabranch_runtime.sinks.delivery import Delivery

_DESCRIPTION = "delivery.json"
_UNFINISHED = ".unfinished"
_BETWEEN = ".."


class Outbox:
    """Store of the parked deliveries (which wait for their sink) of all queries.

    Attributes:
        grouped: query -> last batch of its newest group, delivered or not.
    """

    def __init__(self, directory: Path, next_batch: int, pipeline: str) -> None:
        """Open the outbox; delete results parked by ``next_batch`` and later batches, and groups of
        pipelines other than ``pipeline``."""
        self.grouped: dict[str, int] = {}
        self._directory, self._pipeline = directory, pipeline
        #: Query -> folders of its deliveries, oldest first.
        self._waiting: dict[str, list[Path]] = {}
        #: Query -> folder of its last delivered group.
        self._delivered: dict[str, Path] = {}
        for folder in sorted(directory.glob("*/*")):
            is_draft = folder.name == _UNFINISHED
            if is_draft or (not _is_group(folder) and _span(folder)[1] >= next_batch):
                _delete(folder)
            elif _is_group(folder):
                self._open_group(folder, next_batch)
            else:
                self._waiting.setdefault(folder.parent.name, []).append(folder)

    def _open_group(self, folder: Path, next_batch: int) -> None:
        query, last = folder.parent.name, _span(folder)[1]
        foreign = json.loads((folder / _DESCRIPTION).read_text())["pipeline"] != self._pipeline
        waits = any(folder.glob("*.parquet"))
        # Only the newest :data:`REMEMBERED` batches can be repeated.
        if foreign or (not waits and last < next_batch - REMEMBERED):
            _delete(folder)
            return
        self.grouped[query] = last
        if waits:
            self._waiting.setdefault(query, []).append(folder)
        else:
            self._record(query, folder)

    def queries(self) -> tuple[str, ...]:
        """Return the queries with results that are parked in the outbox."""
        return tuple(self._waiting)

    def waiting(self, query: str) -> int:
        """Return the number of parked deliveries of a query."""
        return len(self._waiting.get(query, ()))

    def batches(self, query: str) -> int:
        """Return the number of batches of the parked deliveries of a query."""
        spans = map(_span, self._waiting.get(query, ()))
        return sum(last - first + 1 for first, last in spans)

    def files(self, query: str) -> list[tuple[int, Path]]:
        """Return the files of a query's parked deliveries with their last batches, in order."""
        folders = self._waiting.get(query, ())
        return [(_span(f)[1], file) for f in folders for file in sorted(f.glob("*.parquet"))]

    def park(self, delivery: Delivery) -> tuple[Path, ...]:
        """Park a delivery: move its files into the outbox and return their new paths."""
        self.draft(delivery)
        return self.place(delivery)

    def draft(self, delivery: Delivery) -> None:
        """Move a delivery's files and description to a draft folder for :meth:`place` to rename."""
        draft = self._draft(delivery)
        for leftover in (self._folder(delivery), draft):
            shutil.rmtree(leftover, ignore_errors=True)
        draft.mkdir(parents=True)
        for number, file in enumerate(delivery.files):
            file.rename(draft / f"{number:05d}.parquet")
        (draft / _DESCRIPTION).write_text(delivery.describe(self._pipeline))

    def place(self, delivery: Delivery) -> tuple[Path, ...]:
        """Rename a delivery's draft folder to its final name; return the paths of its files."""
        query, folder = delivery.query, self._draft(delivery).rename(self._folder(delivery))
        self._waiting[query] = sorted({*self._waiting.get(query, ()), folder})
        if delivery.first is not None:
            self.grouped[query] = delivery.batch
        return tuple(sorted(folder.glob("*.parquet")))

    def oldest(self, query: str) -> Delivery:
        """Return the oldest parked delivery of a query."""
        folder = self._waiting[query][0]
        files = tuple(sorted(folder.glob("*.parquet")))
        return Delivery.from_text((folder / _DESCRIPTION).read_text(), files)

    def remove(self, delivery: Delivery) -> None:
        """Delete a parked delivery, if it exists; the record of a group stays."""
        query, folder = delivery.query, self._folder(delivery)
        waiting = self._waiting.get(query, [])
        if folder not in waiting:
            return
        if delivery.first is None:
            _delete(folder)
        else:
            for file in folder.glob("*.parquet"):
                file.unlink()
            self._record(query, folder)
        waiting.remove(folder)
        if not waiting:
            del self._waiting[query]

    def _record(self, query: str, folder: Path) -> None:
        """Keep a delivered group's folder in the outbox as record; delete the earlier record."""
        earlier = self._delivered.get(query)
        self._delivered[query] = folder
        if earlier is not None:
            _delete(earlier)

    def _draft(self, delivery: Delivery) -> Path:
        return self._directory / delivery.query / _UNFINISHED

    def _folder(self, delivery: Delivery) -> Path:
        name = f"{delivery.batch:010d}"
        if delivery.first is not None:
            name = f"{delivery.first:010d}{_BETWEEN}{name}"
        return self._directory / delivery.query / name


def _delete(folder: Path) -> None:
    """Delete a delivery's folder, such that a kill leaves it complete, or as a draft."""
    shutil.rmtree(folder.rename(folder.with_name(_UNFINISHED)))


def _is_group(folder: Path) -> bool:
    return _BETWEEN in folder.name


def _span(folder: Path) -> tuple[int, int]:
    """Return the first and the last batch of a delivery's folder in the outbox."""
    first, _, last = folder.name.partition(_BETWEEN)
    return int(first), int(last or first)

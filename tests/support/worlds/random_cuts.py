"""A pipeline without Spark whose input is divided into batches at random.

The source is the numbers from 0 on; a batch brings each of its numbers to R (as one more ``a = 0``)
and to S (as ``b``). How many a batch takes is left to chance, so a batch that is planned again is
another one, as it is with a real source. Whatever the cuts, every R joins every S.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.protocol.progress import Mode
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.recovery.rulesets import task_ruleset
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.state.offsets import Offsets
from anabranch_runtime.storage.segment_cache import close_all
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.worlds.driven import Killed, driver


@dataclass
class RandomCuts:
    """A pipeline whose batches are cut at random: its source and its job.

    Attributes:
        total: how many numbers the source has.
        read: numbers that each job was given, for batches that were run.
        settings: further settings of the driver.
    """

    url: str
    folder: Path
    total: int = 24
    random: Random = field(default_factory=lambda: Random(1))
    mode: Mode = Mode.LIVE
    read: list[tuple[int, int, int]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def start(self) -> Driver:
        """Start the pipeline from its state on disk and in Redis only."""
        task_ruleset.cache_clear()
        close_all()
        return driver(self.url, self.folder, self.mode, every=4, **self.settings)

    def step(self, one: Driver) -> bool:
        """Run the next batch; False if the source has no more numbers."""
        begun, at = one.durability.choices.get(one.state.next_batch), _end(one.state.offsets)
        if begun is not None:
            offsets = begun.offsets
        elif at < self.total:
            end = min(at + self.random.randint(1, 4), self.total)
            offsets = Offsets(self.random.randrange(1 << 40), {"feeds": {"at": end}})
        else:
            return False
        one.run(lambda context: self._job(context, at, _end(offsets)), offsets)
        return True

    def interrupt(self, one: Driver) -> None:
        """Fail at the commit of the next batch."""

        def die(*_: object) -> None:
            raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one.durability.manifests, "commit", die)
            with pytest.raises(Killed):
                self.step(one)

    def run(self, one: Driver) -> None:
        """Run all batches to the end of the source."""
        while self.step(one):
            pass

    def _job(self, context: BatchContext, first: int, last: int) -> list[TaskReport]:
        self.read.append((context.batch, first, last))
        values = pa.array(range(first, last), pa.int64())
        moments = pa.array(range(first, last), pa.timestamp("us", tz="UTC"))
        zeros = pa.array([0] * (last - first), pa.int64())
        blocks = [
            Block("R", pa.record_batch({"a": zeros, "ts": moments})),
            Block("S", pa.record_batch({"a": zeros, "b": values, "ts": moments})),
        ]
        known = task_ruleset(context.root, self.url, "test", context.ruleset)
        return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]


def _end(offsets: Offsets | None) -> int:
    return 0 if offsets is None else int(offsets.feeds["at"])


def failing(log: RandomCuts, monkeypatch: pytest.MonkeyPatch, batch: int = 2) -> list[str]:
    """Fail the first attempt at ``batch`` after its tasks; return a list for the attempt's name."""
    failed: list[str] = []
    job = log._job

    def once(context: BatchContext, first: int, last: int) -> list[TaskReport]:
        reports = job(context, first, last)
        if context.batch == batch and not failed:
            failed.append(context.attempt)
            raise OSError("the executor has gone")
        return reports

    monkeypatch.setattr(log, "_job", once)
    return failed

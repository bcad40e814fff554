"""A pipeline over Spark's two logs without Spark: only the logs and Spark's use of them.

The source is the numbers from 0 on; a batch brings each of its numbers to R (as one more ``a = 0``)
and to S (as ``b``). How many a batch takes is left to chance, so a batch that is planned again is
another one, as it is with a real source. Whatever the cuts, every R joins every S.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.protocol.progress import Mode
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.recovery.rulesets import task_ruleset
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.storage.segment_cache import close_all
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.worlds.driven import driver


@dataclass
class SparkLog:
    """Spark's side of one pipeline.

    Attributes:
        total: how many numbers the source has.
        read: numbers that each job was given, for batches that were run.
        source: the source's name in Spark's query.
        settings: further settings of the driver.
    """

    url: str
    folder: Path
    total: int = 24
    random: Random = field(default_factory=lambda: Random(1))
    mode: Mode = Mode.LIVE
    read: list[tuple[int, int, int]] = field(default_factory=list)
    source: str = "feeds"
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """Where the logs are."""
        return self.folder / "state" / "checkpoint"

    def start(self) -> Driver:
        """Start the pipeline from disk and Redis alone."""
        task_ruleset.cache_clear()
        close_all()
        found = driver(self.url, self.folder, self.mode, every=4, **self.settings)
        self._open(found)
        return found

    def step(self, one: Driver) -> bool:
        """The next batch by the logs; False where the source is at its end."""
        offsets, commits = self._log("offsets"), self._log("commits")
        batch = max(offsets, default=-1)
        if batch in commits or batch < 0:
            batch += 1
            at = self._end(batch - 1) if batch else 0
            if at >= self.total:
                return False
            end = min(at + self.random.randint(1, 4), self.total)
            text = f'v2\n{{"t":{self.random.random()}}}\n{self.source}:{{"at":{end}}}'
            self._write("offsets", batch, text)
        first, last = self._end(batch - 1) if batch else 0, self._end(batch)
        try:
            one.run(batch, lambda context: self._job(context, first, last))
        except PipelineError as error:
            if error.code != "rewound":
                raise
            assert one.rewound
            self._open(one)
            return True
        self._write("commits", batch, 'v1\n{"nextBatchWatermarkMs":0}')
        return True

    def run(self, one: Driver) -> None:
        """All batches to the end of the source."""
        while self.step(one):
            pass

    def _open(self, one: Driver) -> None:
        one.align()
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True, exist_ok=True)
        metadata = self.checkpoint / "metadata"
        if not metadata.exists():
            entries = self._log("offsets") | self._log("commits")
            assert not entries, "Spark does not start over entries without metadata"
            metadata.write_text('{"id":"x"}')
        # Spark can't start over logs that it can't read.
        json.loads(metadata.read_text())
        for text in self._log("commits").values():
            json.loads(text.removeprefix("v1\n"))

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

    def _end(self, batch: int) -> int:
        last = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
        return int(json.loads(last.partition(":")[2])["at"])

    def _log(self, name: str) -> dict[int, str]:
        folder = self.checkpoint / name
        return {int(p.name): p.read_text() for p in folder.iterdir() if p.name.isdecimal()}

    def _write(self, name: str, batch: int, text: str) -> None:
        path = self.checkpoint / name / str(batch)
        assert not path.exists(), "Spark never writes an entry twice"
        path.write_text(text)


def failing(log: SparkLog, monkeypatch: pytest.MonkeyPatch, batch: int = 2) -> list[str]:
    """Let the first attempt at ``batch`` fail once its tasks are done; its name, once it has."""
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

"""All-gather between the tasks of a batch: files in the state directory.

Spark's own ``allGather`` for barrier tasks polls for messages once a second, which is longer than
most batches take. All tasks share the state directory anyway. A message is a file that
appears whole (by rename) under its round and task; every task waits until the round is complete.
The directory belongs to one attempt at one batch, so nothing stale can be read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_runtime.errors import PipelineError

#: Least and greatest seconds between two polls; the pause doubles while others are late.
POLL = (0.0005, 0.02)
#: Seconds after which a missing message is an error; Spark kills the survivors of a failed task
#: long before that.
PATIENCE = 3600.0


@dataclass(slots=True)
class Rendezvous:
    """One task's side of the all-gather: a message -> the messages of all, in task order."""

    directory: Path
    task: int
    tasks: int
    _round: int = field(init=False, default=0)

    def __call__(self, message: str) -> list[str]:
        """Publish a message, wait for the messages of the other tasks.

        Raises:
            PipelineError: ``task-missing``: another task's message does not arrive in time.
        """
        number, self._round = self._round, self._round + 1
        if self.tasks == 1:
            return [message]
        self.directory.mkdir(parents=True, exist_ok=True)
        mine = self.directory / f"{number}-{self.task}"
        partial = mine.with_suffix(".partial")
        partial.write_text(message)
        partial.rename(mine)
        return [
            message if task == self.task else self._await(self.directory / f"{number}-{task}")
            for task in range(self.tasks)
        ]

    def _await(self, path: Path) -> str:
        pause, deadline = POLL[0], time.monotonic() + PATIENCE
        while True:
            try:
                return path.read_text()
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise PipelineError(
                        "task-missing", f"no message from another task within {PATIENCE:.0f} s"
                    ) from None
            time.sleep(pause)
            pause = min(2 * pause, POLL[1])

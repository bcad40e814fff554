"""Equal rations for all goals, compared with the service's in a running pipeline.

If all goals have the ration ``s``, each step processes the share ``s`` of its tuples, so all steps
take ``s`` of their CPU time: between rations of 0 and of 1, equal rations are linear in the budget.
So this schedule is the service's with only these two points. The service does not know this
allocation; a thread replaces each published schedule within some hundredths of a second.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import cast

import redis

from anabranch_contract.plans.rations import RationSchedule, SchedulePoint

#: Seconds between looks at the published schedule.
_LOOKING = 0.02


def equalised(schedule: RationSchedule) -> RationSchedule:
    """The schedule with one share for all goals, whatever the budget."""
    count = len(schedule.goals)
    points = (SchedulePoint(0.0, (0.0,) * count), SchedulePoint(1.0, (1.0,) * count))
    return replace(schedule, points=points)


class EqualRations(threading.Thread):
    """Replaces published schedules until it is stopped."""

    def __init__(self, url: str, key: str) -> None:
        """``key``: of the schedule, in the Redis at ``url``."""
        super().__init__(name="equal-rations", daemon=True)
        self._redis, self._key = redis.Redis.from_url(url), key
        self._ended = threading.Event()

    def run(self) -> None:
        """Watch the key."""
        ours = b""
        while not self._ended.wait(_LOOKING):
            text = cast("bytes | None", self._redis.get(self._key))
            if text is not None and text != ours:
                ours = equalised(RationSchedule.loads(text)).dumps().encode()
                self._redis.set(self._key, ours)

    def stop(self) -> None:
        """End, and wait for it."""
        self._ended.set()
        self.join()
        self._redis.close()

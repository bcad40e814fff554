"""Policy with equal rations for all goals, for comparison with the service's policies in a running
pipeline.

If all goals have the ration ``s``, each step processes the share ``s`` of its tuples, so all steps
take the share ``s`` of their CPU time: equal rations are linear in the budget. So the schedule
consists of two points only, with all rations 0 and all rations 1. The service does not have this
policy: a thread replaces each schedule that it publishes, within some hundredths of a second.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import cast

import redis

from anabranch_contract.plans.rations import RationSchedule, SchedulePoint

#: Seconds between two checks for a newly published schedule.
_LOOKING = 0.02


def equalised(schedule: RationSchedule) -> RationSchedule:
    """Return the schedule with the same ration for all goals, for every budget."""
    count = len(schedule.goals)
    points = (SchedulePoint(0.0, (0.0,) * count), SchedulePoint(1.0, (1.0,) * count))
    return replace(schedule, points=points)


class EqualRations(threading.Thread):
    """Thread that replaces published schedules by ones with equal rations, until it is stopped."""

    def __init__(self, url: str, key: str) -> None:
        """``key``: key of the schedule in the Redis server at ``url``."""
        super().__init__(name="equal-rations", daemon=True)
        self._redis, self._key = redis.Redis.from_url(url), key
        self._ended = threading.Event()

    def run(self) -> None:
        """Watch the key, and replace each new schedule."""
        ours = b""
        while not self._ended.wait(_LOOKING):
            text = cast("bytes | None", self._redis.get(self._key))
            if text is not None and text != ours:
                ours = equalised(RationSchedule.loads(text)).dumps().encode()
                self._redis.set(self._key, ours)

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._ended.set()
        self.join()
        self._redis.close()

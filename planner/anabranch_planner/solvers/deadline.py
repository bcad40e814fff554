"""Deadlines on the caller's clock: the planner itself never reads a clock.

The planner asks a :class:`Deadline` for the remaining time, and records in it the duration of each
phase. Without a limit, a plan does not depend on the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _frozen() -> float:
    return 0.0


class Deadline:
    """A time limit of planning, and the seconds that each phase took (``spent``).

    Args:
        clock: seconds from any origin, never decreasing (``time.monotonic``). The default never
            advances: the limit then applies to each call of a solver separately.
        seconds: seconds from now until the deadline; None: no limit.
        parent: a deadline whose ``spent`` is shared with this one.

    >>> ticks = iter([0.0, 1.0, 1.0, 1.5, 2.0])
    >>> deadline = Deadline(lambda: next(ticks), seconds=3.0)
    >>> deadline.left()
    2.0
    >>> with deadline.phase("solve"):
    ...     pass
    >>> deadline.spent
    {'solve': 0.5}
    >>> deadline.left()
    1.0
    """

    __slots__ = ("_began", "clock", "seconds", "spent")

    def __init__(
        self,
        clock: Callable[[], float] = _frozen,
        *,
        seconds: float | None = None,
        parent: Deadline | None = None,
    ) -> None:
        self.clock = clock
        self.seconds = seconds
        self.spent: dict[str, float] = {} if parent is None else parent.spent
        self._began = clock()

    def left(self) -> float | None:
        """Seconds until the deadline, at least 0; None without a limit."""
        if self.seconds is None:
            return None
        return max(self.seconds - (self.clock() - self._began), 0.0)

    def expired(self) -> bool:
        """Whether the deadline has passed."""
        left = self.left()
        return left is not None and left <= 0.0

    def share(self, part: float) -> Deadline:
        """A deadline after a fraction ``part`` of the remaining time; without a limit, itself."""
        left = self.left()
        if left is None:
            return self
        return Deadline(self.clock, seconds=left * part, parent=self)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside the block to ``spent[name]``."""
        began = self.clock()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + self.clock() - began

"""Time, handed in: the planner itself never looks at a clock.

A :class:`Watch` is made by the caller around its own clock. The planner asks it how much of the
deadline is left and tells it which phase it is in; a plan never depends on it where there is no
deadline.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _frozen() -> float:
    return 0.0


class Watch:
    """A deadline and where the time went.

    Args:
        clock: seconds from any origin, never going back (``time.monotonic``). Without one no
            time seems to pass: a deadline then limits each call of a solver on its own.
        deadline: seconds from now until an answer has to be there; None is no limit.
        parent: report phases to this watch as well (a part of a deadline for a part of the work).

    >>> ticks = iter([0.0, 1.0, 1.0, 1.5, 2.0])
    >>> watch = Watch(lambda: next(ticks), deadline=3.0)
    >>> watch.left()
    2.0
    >>> with watch.phase("solve"):
    ...     pass
    >>> watch.spent
    {'solve': 0.5}
    >>> watch.left()
    1.0
    """

    __slots__ = ("_began", "clock", "deadline", "spent")

    def __init__(
        self,
        clock: Callable[[], float] = _frozen,
        *,
        deadline: float | None = None,
        parent: Watch | None = None,
    ) -> None:
        self.clock = clock
        self.deadline = deadline
        self.spent: dict[str, float] = {} if parent is None else parent.spent
        self._began = clock()

    def left(self) -> float | None:
        """Seconds until the deadline, at least 0; None where there is none."""
        if self.deadline is None:
            return None
        return max(self.deadline - (self.clock() - self._began), 0.0)

    def expired(self) -> bool:
        """Whether the deadline has passed."""
        left = self.left()
        return left is not None and left <= 0.0

    def within(self, seconds: float) -> Watch:
        """A watch of at most ``seconds`` more that counts its phases here."""
        left = self.left()
        return Watch(
            self.clock, deadline=seconds if left is None else min(seconds, left), parent=self
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside the block under ``name``."""
        began = self.clock()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + self.clock() - began

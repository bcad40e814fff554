"""Input offsets of batches: the end of each source's input, and the time of their planning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: Key in the offset of all feeds: its value is the number of the last batch that was planned only
#: to compute withheld results.
OWED = "+"


@dataclass(frozen=True, slots=True)
class Offsets:
    """End of a batch's input.

    Attributes:
        planned: time at which the batch was planned, in microseconds since 1970.
        sources: source -> its offset, in types of JSON.
    """

    planned: int = 0
    sources: dict[str, Any] = field(default_factory=dict)

    @property
    def feeds(self) -> dict[str, Any]:
        """Offset of the planned source of all feeds (``sources.feeds``), for the batch's end."""
        found: dict[str, Any] = self.sources.get("feeds", {})
        return found

    def reads_after(self, before: Offsets | None) -> bool:
        """Whether the batch from ``before`` to these offsets was planned to read input, and not
        only to compute withheld results."""
        return before is None or _read(before) != _read(self)


def _read(offsets: Offsets) -> dict[str, Any]:
    return {
        name: {feed: at for feed, at in offset.items() if feed != OWED}
        for name, offset in offsets.sources.items()
    }

"""Input that could not be read, as the manifest has it.

A feed whose input can't be read for now is *held*: its offset in Spark's log may go on, but it has
really been read up to ``Held.start`` only, and a later batch begins there. Input given up for good
is recorded (``Unread``). Feeds without either are not mentioned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anabranch_contract.protocol.intake import Unread, UnreadPiece


@dataclass(frozen=True, slots=True)
class Held:
    """A feed's hold, and its reason.

    Attributes:
        start: the feed's offset up to which it has been read.
        piece: the unreadable input there. ``remedy``: the way to repair it.
        trials: number of batches that have tried to read it.
    """

    start: Any
    piece: UnreadPiece
    remedy: str
    trials: int

    @property
    def error(self) -> str:
        """One sentence for people."""
        return f"{self.piece.reason} ({self.remedy})" if self.remedy else self.piece.reason


@dataclass(frozen=True, slots=True)
class FeedState:
    """One feed: its stream, its hold, and its input given up."""

    stream: str
    held: Held | None = None
    unread: Unread = field(default_factory=Unread)


@dataclass(frozen=True, slots=True)
class UnreadInput:
    """The input of one feed that a begun batch leaves out, for a repetition to leave out as well.

    Attributes:
        upto: the feed's offset up to which the batch reads. ``held``: why it is held there.
        skipped: file that the batch skips -> code and reason.
    """

    upto: Any
    held: Held | None
    skipped: dict[str, tuple[str, str]]

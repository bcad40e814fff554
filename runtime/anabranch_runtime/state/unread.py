"""Records of unreadable input in the manifest.

A feed (input of one stream) that can't be read at present is *held*: its planned offset may
advance, but the feed is read only up to ``Held.start``, from where a later batch continues. Input
that is skipped permanently is recorded too (``Unread``). Other feeds have no record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anabranch_contract.protocol.intake import Unread, UnreadPiece


@dataclass(frozen=True, slots=True)
class Held:
    """A feed's hold after a read error, and its reason.

    Attributes:
        start: offset up to which the feed has been read.
        piece: the unreadable input at this offset. ``remedy``: the way to repair it.
        trials: number of batches whose attempt to read the piece has failed.
    """

    start: Any
    piece: UnreadPiece
    remedy: str
    trials: int

    @property
    def error(self) -> str:
        """The reason of the hold and the remedy, as one sentence."""
        return f"{self.piece.reason} ({self.remedy})" if self.remedy else self.piece.reason


@dataclass(frozen=True, slots=True)
class FeedState:
    """A feed's stream, its hold after a read error (None: not held), and its skipped input."""

    stream: str
    held: Held | None = None
    unread: Unread = field(default_factory=Unread)


@dataclass(frozen=True, slots=True)
class UnreadInput:
    """The input of one feed that a batch leaves out, and so do repetitions of the batch.

    Attributes:
        upto: offset up to which the batch reads the feed. ``held``: the hold at this offset.
        skipped: file that the batch skips -> (error code, reason).
    """

    upto: Any
    held: Held | None
    skipped: dict[str, tuple[str, str]]

"""The batches of an activation, for people."""

from __future__ import annotations


def last_batch(expired: int | None) -> int | None:
    """The last batch of an activation; None: it goes on. ``expired`` is the first one after it."""
    return None if expired is None else expired - 1


def batches_text(activated: int | None, expired: int | None) -> str:
    """First and last batch.

    >>> batches_text(3, 7), batches_text(3, None), batches_text(3, 3), batches_text(None, None)
    ('3 to 6', 'from 3 on', 'none', 'none so far')
    """
    if activated is None:
        return "none so far"
    last = last_batch(expired)
    if last is None:
        return f"from {activated:,} on"
    return f"{activated:,} to {last:,}" if last >= activated else "none"

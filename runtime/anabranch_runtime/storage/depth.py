"""Extent of the check of a stored state, in a module that imports nothing else."""

from __future__ import annotations

from enum import StrEnum


class Verify(StrEnum):
    """Extent of the check at a start: ``FULL`` every byte, ``FOOTERS`` only pack footers."""

    FULL = "full"
    FOOTERS = "footers"

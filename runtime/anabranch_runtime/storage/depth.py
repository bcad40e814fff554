"""How much of a stored state is checked at a start, in a module that imports nothing else."""

from __future__ import annotations

from enum import StrEnum


class Verify(StrEnum):
    """Extent of the check at a start: ``FULL`` every byte, ``FOOTERS`` only pack footers."""

    FULL = "full"
    FOOTERS = "footers"

"""Extent of the check of a stored state at a start; this module imports nothing else."""

from __future__ import annotations

from enum import StrEnum


class Verify(StrEnum):
    """Extent of the check of packs at a start: ``FULL``: every byte, ``FOOTERS``: only footers."""

    FULL = "full"
    FOOTERS = "footers"

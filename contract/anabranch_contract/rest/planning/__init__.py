"""Bodies of plans: dry runs, epochs, revisions, settings, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract.deferred import modules_of

if not TYPE_CHECKING:
    __getattr__ = modules_of(__name__)

"""The ledger of rations: ``<results>/.rations/<batch>.json`` for each batch with rations.

With it and the input anybody can compute which results there have to be (``semantics.md``,
"Rations"). A document is a :class:`~anabranch_contract.plans.rations.RationedBatches` of one batch.
It is written before the batch commits, and replaced where the batch is applied again. The manifest
has the newest entries only. ``<results>/.rations/paid/<batch>.json`` is a
:class:`~anabranch_contract.plans.rations.PaidBatches`, for each batch that completes what was owed
of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract import codec
from anabranch_contract.plans.rations import PaidBatches, RationedBatches
from anabranch_runtime.sinks.notes import put

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch_contract.plans.rations import Ration

#: The folder below the results. No query can have a name that begins with a dot.
LEDGER = ".rations"
#: The folder below it for what was made good.
PAID = "paid"


def publish_rations(results: Path, batch: int, rations: tuple[Ration, ...]) -> None:
    """Write what ``batch`` withholds, or remove what an earlier attempt at it has written."""
    found = RationedBatches(batch, batch, rations) if rations else None
    put(results / LEDGER / f"{batch:010d}.json", found)


def publish_paid(results: Path, batch: int, paid: PaidBatches | None) -> None:
    """Write what ``batch`` completes; likewise."""
    put(results / LEDGER / PAID / f"{batch:010d}.json", paid)


def read_rations(results: Path) -> tuple[RationedBatches, ...]:
    """The ledger, oldest first."""
    found = sorted((results / LEDGER).glob("*.json"))
    return tuple(codec.loads(path.read_bytes(), RationedBatches) for path in found)


def read_paid(results: Path) -> tuple[PaidBatches, ...]:
    """What was made good, in that order."""
    found = sorted((results / LEDGER / PAID).glob("*.json"))
    return tuple(codec.loads(path.read_bytes(), PaidBatches) for path in found)

"""The ledger of rations: ``<results>/.rations/<batch>.json`` for each batch with rations.

With it and the input anybody can compute which results there have to be (``semantics.md``,
"Rations"). A document is a :class:`~anabranch_contract.plans.rations.RationedBatches` of one batch.
It is written before the batch commits, and replaced where the batch is applied again. The manifest
has the newest entries only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract import codec
from anabranch_contract.plans.rations import RationedBatches

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch_contract.plans.rations import Ration

#: The folder below the results. No query can have a name that begins with a dot.
LEDGER = ".rations"


def publish_rations(results: Path, batch: int, rations: tuple[Ration, ...]) -> None:
    """Write what ``batch`` withholds, or remove what an earlier attempt at it has written."""
    folder = results / LEDGER
    path = folder / f"{batch:010d}.json"
    if not rations:
        path.unlink(missing_ok=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".new")
    staged.write_text(codec.dumps(RationedBatches(batch, batch, rations)), encoding="utf-8")
    staged.replace(path)


def read_rations(results: Path) -> tuple[RationedBatches, ...]:
    """The ledger, oldest first."""
    found = sorted((results / LEDGER).glob("*.json"))
    return tuple(codec.loads(path.read_bytes(), RationedBatches) for path in found)

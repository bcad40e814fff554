"""The ledger of load shedding: ``<results>/.rations/<batch>.json`` per batch with withheld tuples.

From the ledger and the input a reader can compute the exact results (``semantics.md``, "Rations").
Each document is a :class:`~anabranch_contract.plans.rations.RationedBatches` of one batch, written
before the batch commits and replaced if the batch is repeated. The manifest only has the newest of
these entries. A batch that completes the catch-up of other batches has a
:class:`~anabranch_contract.plans.rations.PaidBatches` in ``<results>/.rations/paid/<batch>.json``.
``<results>/.rations/reads/<batch>.json`` is a
:class:`~anabranch_contract.plans.batch_reads.BatchReads`. It exists for every batch since the first
one under a policy with rations; from it, readers know which member of a result arrived last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from anabranch_contract import codec
from anabranch_contract.plans.batch_reads import BatchReads
from anabranch_contract.plans.rations import PaidBatches, Ration, RationedBatches

_T = TypeVar("_T", RationedBatches, PaidBatches)

#: Folder below the results directory; the names of queries do not begin with a dot.
LEDGER = ".rations"
#: Subfolders of the ledger: completed catch-ups, and input offsets of batches.
PAID, READS = "paid", "reads"


def publish_rations(
    results: Path,
    batch: int,
    rations: tuple[Ration, ...],
    watermarks: dict[str, int],
    now: int | None,
) -> None:
    """Write the ledger entry of ``batch``, or remove the entry of an earlier attempt.

    Args:
        watermarks, now: see :class:`~anabranch_contract.plans.rations.RationedBatches`.
    """
    found = RationedBatches(batch, batch, rations, watermarks, now) if rations else None
    put(results / LEDGER / f"{batch:010d}.json", found)


def publish_paid(results: Path, batch: int, paid: PaidBatches | None) -> None:
    """Record in the ledger the batches whose withheld results ``batch`` completes, if any."""
    put(results / LEDGER / PAID / f"{batch:010d}.json", paid)


@dataclass(slots=True)
class Ledger:
    """Writes the ledger of load shedding below ``results``."""

    results: Path
    #: Whether an earlier batch has recorded its input offsets in the ledger.
    _recording: bool = False

    def publish(
        self,
        batch: int,
        rations: tuple[Ration, ...],
        watermarks: dict[str, int],
        now: int | None,
        paid: PaidBatches | None,
        read: BatchReads | None,
    ) -> bool:
        """Write the ledger entries of ``batch`` (rations, completed catch-ups, input offsets) in
        place of an earlier attempt's; return whether files must be synced.

        Args:
            rations, watermarks, now, paid: as :func:`publish_rations` and :func:`publish_paid`.
            read: the batch's input offsets; None: not needed (no load shedding, generated input).
        """
        publish_rations(self.results, batch, rations, watermarks, now)
        publish_paid(self.results, batch, paid)
        put(self.results / LEDGER / READS / f"{batch:010d}.json", read)
        return bool(rations) or paid is not None or read is not None

    def records(self, batch: int) -> bool:
        """Whether ``batch`` must record its input, because an earlier batch has recorded one."""
        files = (self.results / LEDGER / READS).glob("*.json")
        self._recording = self._recording or any(int(file.stem) < batch for file in files)
        return self._recording


@dataclass(slots=True)
class NewEntries:
    """Incremental reader of the ledger. It may read entries of uncommitted batches; if such a batch
    is repeated, its entries are the same."""

    results: Path
    _seen: set[str] = field(init=False, default_factory=set)

    def rationed(self) -> list[RationedBatches]:
        """Return the entries for results withheld since the last call, oldest first."""
        return self._new(self.results / LEDGER, RationedBatches)

    def paid(self) -> list[PaidBatches]:
        """Return the ledger's entries for catch-ups completed since the last call, in order."""
        return self._new(self.results / LEDGER / PAID, PaidBatches)

    def _new(self, folder: Path, kind: type[_T]) -> list[_T]:
        new = sorted(p for p in folder.glob("*.json") if str(p) not in self._seen)
        self._seen.update(map(str, new))
        return [codec.loads(path.read_bytes(), kind) for path in new]


def put(path: Path, document: Any) -> None:
    """Write a ledger document (None: delete its file), without syncing it to the disk."""
    if document is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".new")
    staged.write_text(codec.dumps(document), encoding="utf-8")
    staged.replace(path)

"""Storage of an epoch's ruleset as a patch (difference) of an earlier epoch's ruleset, its base."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch_contract.packed import pack
from anabranch_contract.plans.patches import WORTH, difference
from anabranch_contract.plans.ruleset import RulesetId, digest
from anabranch_service.registry.publishing.publication import Patched, Sealed, seal
from anabranch_service.registry.records import EpochRecord


@dataclass(frozen=True, slots=True)
class Base:
    """A ruleset published in full; later ones are patches (differences from it).

    Attributes:
        epoch, text: its epoch and its JSON text. ``check``: digest of its stored form.
        spent: total characters of all its patches so far.
    """

    epoch: int
    text: str
    check: str
    spent: int = 0


def seal_patched(record: EpochRecord, ruleset: str, base: Base | None) -> tuple[Sealed, Base]:
    """Return the stored form of an epoch, its ``ruleset`` as a patch of ``base`` if that is much
    smaller; and the base for the next epoch.

    Patches of one base grow as plans move away from it. A ruleset is stored in full again once the
    patches are together longer than it: with equal changes per epoch, this minimises the mean bytes
    per epoch.
    """
    sealed = seal(record, ruleset)
    if base is not None:
        text = pack(difference(RulesetId(base.epoch), base.text, ruleset).dumps())
        whole, spent = len(sealed.ruleset), base.spent + len(text)
        if len(text) <= WORTH * whole and spent <= whole:
            patch = Patched(base.epoch, base.check, text)
            return replace(sealed, patch=patch), replace(base, spent=spent)
    return sealed, Base(record.epoch, ruleset, digest(sealed.ruleset))

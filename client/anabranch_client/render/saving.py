"""The CPU time that a plan saves, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch_contract.rest.epochs import SavingOut


def saving_text(saving: SavingOut) -> str:
    """The mean with its range, and the seconds and CPU seconds behind it."""
    spread = f"{saving.lowest:.1%} to {saving.highest:.1%} in {saving.epochs} epochs"
    return (
        f"{saving.share:.1%} ({spread}), estimated over {saving.seconds:.0f} s: "
        f"{saving.cpu_seconds:.2g} CPU s instead of {saving.individual_cpu_seconds:.2g} with each "
        "query alone"
    )

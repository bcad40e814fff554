"""Deciding what a batch withholds from probes (``semantics.md``, "Rations")."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch_contract.plans.rations import Ration
    from anabranch_contract.plans.ruleset import Ruleset


class Rationer:
    """Chooses the rations of batches."""

    def rations(self, batch: int, ruleset: Ruleset) -> tuple[Ration, ...]:
        """The rations of ``batch``, which goes by ``ruleset``; of goals left out the share is 1."""
        del batch, ruleset
        return ()

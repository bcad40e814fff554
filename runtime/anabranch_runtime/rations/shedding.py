"""Load shedding and catch-up of a batch, as its tasks see them."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.plans.rations import Ration
from anabranch_runtime.rations.catch_up import next_catch_up
from anabranch_runtime.rations.freshness import present
from anabranch_runtime.state.debt import CatchUp
from anabranch_runtime.state.manifest import State


@dataclass(frozen=True, slots=True)
class Shedding:
    """Withheld, late and sampled results of one batch.

    Attributes:
        rations: of goals with a share below 1; the share of all others is 1.
        sampled: queries whose results carry their inclusion probabilities.
        catch_up: withheld results that the batch delivers, if any.
        now: reference time for tuple ages (``rations.freshness``), microseconds.
    """

    rations: tuple[Ration, ...] = ()
    sampled: frozenset[str] = frozenset()
    catch_up: CatchUp | None = None
    now: int | None = None

    @classmethod
    def of(
        cls,
        state: State,
        rations: tuple[Ration, ...],
        sampled: frozenset[str],
        planned: int | None,
    ) -> Shedding:
        """For the batch that starts in ``state``, with its planning time."""
        owed = None if rations else next_catch_up(state)
        return cls(rations, sampled, owed, present(state, planned))

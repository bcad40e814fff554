"""Settings of the next plan: the defaults, and the changes of a request."""

from __future__ import annotations

from anabranch_contract.rest.plans import DryRunIn
from anabranch_contract.rest.settings import SettingsIn
from anabranch_service.registry.records import PlanningRecord
from anabranch_service.settings import Settings

#: Settings that null lifts.
LIFTED = ("memory", "copies", "intermediate_results", "revision_gain", "capacity")


def default_planning(settings: Settings) -> PlanningRecord:
    """The settings until others are put over REST."""
    return PlanningRecord(
        optimizer=settings.optimizer,
        objective=settings.objective,
        parallelism=settings.parallelism,
        revision_gain=settings.revision_gain,
    )


def changed(current: PlanningRecord, body: SettingsIn | DryRunIn) -> PlanningRecord:
    """``current`` with what ``body`` gives; null lifts a limit and means nothing elsewhere."""
    given = body.model_dump(include=set(PlanningRecord.model_fields), exclude_unset=True)
    changes = {k: v for k, v in given.items() if v is not None or k in LIFTED}
    return PlanningRecord.model_validate({**current.model_dump(), **changes})

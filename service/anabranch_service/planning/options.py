"""Settings of the next plan: the defaults, and the changes of a request."""

from __future__ import annotations

from anabranch_contract.rest.planning.plans import DryRunIn
from anabranch_contract.rest.planning.settings import PlanningSettings, SettingsIn, nullable
from anabranch_service.settings import ServiceSettings


def default_planning(settings: ServiceSettings) -> PlanningSettings:
    """The settings until others are put over REST."""
    return PlanningSettings(
        optimizer=settings.optimizer,
        objective=settings.objective,
        parallelism=settings.parallelism,
        revision_gain=settings.revision_gain,
    )


def changed(current: PlanningSettings, body: SettingsIn | DryRunIn) -> PlanningSettings:
    """``current`` with what ``body`` gives; null lifts a limit and means nothing elsewhere."""
    given = body.model_dump(include=set(PlanningSettings.model_fields), exclude_unset=True)
    changes = {k: v for k, v in given.items() if v is not None or nullable(k)}
    return PlanningSettings.model_validate({**current.model_dump(), **changes})

"""Planning settings: defaults, changes by a request, and the planner's options."""

from __future__ import annotations

from anabranch_contract.plans.plan import LookingAhead
from anabranch_contract.rest.documents import nullable
from anabranch_contract.rest.planning.plans import DryRunIn
from anabranch_contract.rest.planning.settings import PlanningSettings, SettingsIn
from anabranch_planner.plans.optimise import Options
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.settings import ServiceSettings


def default_planning(settings: ServiceSettings) -> PlanningSettings:
    """Return the planning settings in force until a client changes them over REST."""
    return PlanningSettings(
        optimizer=settings.planning.optimizer,
        objective=settings.planning.objective,
        parallelism=settings.planning.parallelism,
        revision_gain=settings.planning.revision_gain,
    )


def planner_options(settings: PlanningSettings, deadline: Deadline) -> Options:
    """Return the planner's options for epochs and revisions, from the planning settings."""
    return Options(
        optimizer=settings.optimizer,
        objective=settings.objective,
        solver=settings.solver,
        parallelism=settings.parallelism,
        mir=settings.intermediate_results != 0,
        substreams=settings.substreams,
        look_ahead=settings.look_ahead is LookingAhead.AUTO,
        deadline=deadline,
    )


def changed(current: PlanningSettings, body: SettingsIn | DryRunIn) -> PlanningSettings:
    """Return ``current`` with the changes in ``body``; null removes a limit, else it is ignored."""
    given = body.model_dump(include=set(PlanningSettings.model_fields), exclude_unset=True)
    changes = {k: v for k, v in given.items() if v is not None or nullable(PlanningSettings, k)}
    return PlanningSettings.model_validate({**current.model_dump(), **changes})

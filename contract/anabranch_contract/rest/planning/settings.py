"""Planning settings: one definition of each setting, for REST, command line, client and registry.

A new setting is a field of :class:`PlanningSettings`. The bodies of ``/v1/settings``, the options
of ``anabranch settings set`` and the record in Redis follow from it.
"""

from __future__ import annotations

from enum import EnumType
from typing import Any, Literal, TypeVar, cast

from pydantic import Field

from anabranch_contract.plans.plan import (
    BACKFILL_HORIZON,
    Approval,
    Backfilling,
    HotKeyDealing,
    LookingAhead,
    Objective,
    Optimizer,
    Solver,
)
from anabranch_contract.plans.rations import Allocation, Overload
from anabranch_contract.rest.documents import Closed, Open, changes_of, with_fields


class PlanningSettings(Closed):
    """Settings of planning that may change at run time, from the next planned epoch on.

    Attributes:
        optimizer: method that chooses probe orders and stores.
        objective: unit of plan costs: CPU seconds, tuples sent and rows written, or tuples sent
            (``paper``).
        parallelism: partitions per store.
        switching: penalty for a step or store copy that the running epoch lacks, as a fraction of
            its cost; 0: off.
        memory: maximum bytes of all store copies.
        copies: maximum copies per store.
        intermediate_results: maximum number of intermediate results.
        solver: solver of the integer program.
        backfill: backfill of new intermediate results from stored rows; ``auto``: if cheaper.
        backfill_horizon: expected lifetime of a new intermediate result, in lengths of the history.
        substreams: maximum number of substreams per stream, each with its own probe orders; 1: off.
        revision_gain: minimum saving of a revision of the plan within an epoch, as a fraction of
            the running plan's cost.
        approval: ``manual``: a plan that changes the running one waits for an operator's approval.
        overload: reaction to input beyond the machine's capacity: wait, or ration probes.
        allocation: objective of rations under overload.
        latency_goal: seconds from a row's arrival to its results; rations are chosen to meet it.
        capacity: fixed share of the rationed probes' CPU time that may be used, under any load.
        look_ahead: ``auto``: if cheaper, drop tuples early that can't match in a later probe.
        hot_keys: ``auto``: if cheaper, spread rows of frequent key values over several hosts.
    """

    optimizer: Optimizer = Optimizer.CLASH
    objective: Objective = Objective.SECONDS
    parallelism: int = Field(default=1, ge=1, le=1024)
    switching: float = Field(default=0.1, ge=0, le=1000, allow_inf_nan=False)
    memory: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    copies: int | None = Field(default=None, ge=1, le=1024)
    intermediate_results: int | None = Field(default=None, ge=0, le=1_000_000)
    solver: Solver = Solver.BRANCH
    backfill: Backfilling = Backfilling.AUTO
    backfill_horizon: float = Field(default=BACKFILL_HORIZON, ge=0, le=1e6, allow_inf_nan=False)
    substreams: int = Field(default=4, ge=1, le=64)
    revision_gain: float | None = Field(default=0.1, ge=0, le=1, allow_inf_nan=False)
    approval: Approval = Approval.AUTOMATIC
    overload: Overload = Overload.WAIT
    allocation: Allocation = Allocation.FAIR
    latency_goal: float = Field(default=2.0, ge=0.1, le=3600, allow_inf_nan=False)
    capacity: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    look_ahead: LookingAhead = LookingAhead.NEVER
    hot_keys: HotKeyDealing = HotKeyDealing.AUTO


_NULL = "Null: no limit."
_Settings = TypeVar("_Settings", bound=type[PlanningSettings])


def _opened(body: _Settings) -> _Settings:
    """Let enumerations of settings accept unknown values of a newer service, as text."""
    opened = cast("Any", Open)
    choices = {
        name: (opened[field.annotation], field)
        for name, field in PlanningSettings.model_fields.items()
        if isinstance(field.annotation, EnumType)
    }
    return with_fields(body, choices)


@changes_of(PlanningSettings, null=_NULL)
class SettingsIn(Closed):
    """Planning settings to change; settings left out keep their value."""


@changes_of(
    PlanningSettings,
    "optimizer",
    "objective",
    "parallelism",
    "switching",
    "memory",
    "copies",
    "intermediate_results",
    "solver",
    null=_NULL,
)
class AssumedSettings(Closed):
    """Planning settings for a dry run; settings left out have their current value."""


@_opened
class SettingsOut(PlanningSettings):
    """Planning settings, and settings that are fixed when the process starts.

    Attributes:
        mode: ``live``, or ``step``: epochs wait for their plans, as in replays.
        epoch_batches: number of batches of an epoch.
    """

    mode: Open[Literal["live", "step"]]
    epoch_batches: int

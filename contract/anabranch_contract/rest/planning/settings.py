"""Planning settings: the one definition of each, for REST, command line, client and registry.

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
    """Settings of planning that may change at run time, from the next planned epoch on."""

    optimizer: Optimizer = Field(
        default=Optimizer.CLASH, description="Method that chooses probe orders and stores."
    )
    objective: Objective = Field(
        default=Objective.SECONDS,
        description="Unit of plan costs: CPU seconds, tuples sent and written, or sent (`paper`).",
    )
    parallelism: int = Field(default=1, ge=1, le=1024, description="Partitions per store.")
    switching: float = Field(
        default=0.1,
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="Penalty for a step or store copy that the running epoch lacks, as a fraction "
        "of its cost; 0: off.",
    )
    memory: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="Maximum bytes of all store copies."
    )
    copies: int | None = Field(default=None, ge=1, le=1024, description="Maximum copies per store.")
    intermediate_results: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Maximum number of intermediate results."
    )
    solver: Solver = Field(default=Solver.BRANCH, description="Solver of the integer program.")
    backfill: Backfilling = Field(
        default=Backfilling.AUTO,
        description="Backfill of new intermediate results from stored rows; `auto`: if cheaper.",
    )
    backfill_horizon: float = Field(
        default=BACKFILL_HORIZON,
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="Expected lifetime of a new intermediate result, in lengths of the history.",
    )
    substreams: int = Field(
        default=4,
        ge=1,
        le=64,
        description="Maximum substreams per stream, each with its own probe orders; 1: off.",
    )
    revision_gain: float | None = Field(
        default=0.1,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Minimum saving of a revision of the plan within an epoch, as a fraction of "
        "the running plan's cost.",
    )
    approval: Approval = Field(
        default=Approval.AUTOMATIC,
        description="`manual`: a plan that changes the running one waits for approval.",
    )
    overload: Overload = Field(
        default=Overload.WAIT,
        description="Reaction to input beyond the machine's capacity: wait, or ration probes.",
    )
    allocation: Allocation = Field(
        default=Allocation.FAIR, description="Objective of rations under overload."
    )
    latency_goal: float = Field(
        default=2.0,
        ge=0.1,
        le=3600,
        allow_inf_nan=False,
        description="Seconds from a row's arrival to its results, which rations aim to keep.",
    )
    capacity: float | None = Field(
        default=None,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Fixed share of the rationed probes' CPU time to spend, under any load.",
    )
    look_ahead: LookingAhead = Field(
        default=LookingAhead.NEVER,
        description="`auto`: if cheaper, drop tuples that can't match in a later probe early.",
    )
    hot_keys: HotKeyDealing = Field(
        default=HotKeyDealing.AUTO,
        description="`auto`: if cheaper, spread rows of frequent key values over several hosts.",
    )


_NULL = "Null: no limit."
_Settings = TypeVar("_Settings", bound=type[PlanningSettings])


def _opened(body: _Settings) -> _Settings:
    """Make the enumerations of ``body`` accept unknown values, of a newer service, as text."""
    opened = cast("Any", Open)
    choices = {
        name: (opened[field.annotation], field)
        for name, field in PlanningSettings.model_fields.items()
        if isinstance(field.annotation, EnumType)
    }
    return with_fields(body, choices)


@changes_of(PlanningSettings, null=_NULL)
class SettingsIn(Closed):
    """Planning settings; fields left out keep their value."""


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
    """Planning settings that a dry run may assume; fields left out keep their value."""


@_opened
class SettingsOut(PlanningSettings):
    """Planning settings; ``mode`` and ``epoch_batches`` are fixed when the process starts."""

    mode: Open[Literal["live", "step"]]
    epoch_batches: int

"""Bodies of ``/v1/settings``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from anabranch_contract.plans.plan import (
    Approval,
    Backfilling,
    HotKeyDealing,
    LookingAhead,
    Objective,
    Optimizer,
    Solver,
)
from anabranch_contract.plans.rations import Allocation, Overload
from anabranch_contract.rest.documents import Closed, Document, Open

Switching = Annotated[
    float,
    Field(
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="What a step or store copy that the running epoch does not have is charged, "
        "as a part of its cost; 0: nothing.",
    ),
]
Memory = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Copies = Annotated[int, Field(ge=1, le=1024)]
IntermediateResults = Annotated[int, Field(ge=0, le=1_000_000)]
Horizon = Annotated[
    float,
    Field(
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="For how long a plan is expected to use a new intermediate result, as "
        "multiples of the history so far.",
    ),
]
RevisionGain = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="The share of the running plan's cost that a revision of the epoch's rules "
        "has to save.",
    ),
]
LatencyGoal = Annotated[
    float,
    Field(
        ge=0.1,
        le=3600,
        allow_inf_nan=False,
        description="Seconds from a row's arrival to the commit of its results that probes are "
        "rationed for, where the policy is to ration.",
    ),
]
Capacity = Annotated[
    float,
    Field(
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="The share of rationed probes' CPU time that is spent, whatever the load.",
    ),
]


class SettingsIn(Closed):
    """Planning settings; what is left out keeps its value."""

    optimizer: Optimizer | None = None
    objective: Objective | None = None
    parallelism: Annotated[int, Field(ge=1, le=1024)] | None = None
    switching: Switching | None = None
    memory: Memory | None = Field(default=None, description="Null: any amount.")
    copies: Copies | None = Field(default=None, description="Null: any number.")
    intermediate_results: IntermediateResults | None = Field(
        default=None, description="Intermediate results kept, at most; 0: none, null: any number."
    )
    solver: Solver | None = None
    backfill: Backfilling | None = None
    backfill_horizon: Horizon | None = None
    substreams: Annotated[int, Field(ge=1, le=64)] | None = None
    revision_gain: RevisionGain | None = Field(default=None, description="Null: no revisions.")
    approval: Approval | None = Field(
        default=None,
        description="`manual`: a plan that changes what runs waits until it is approved.",
    )
    overload: Overload | None = None
    allocation: Allocation | None = None
    latency_goal: LatencyGoal | None = None
    capacity: Capacity | None = Field(
        default=None, description="Null: as much as the machine allows."
    )
    look_ahead: LookingAhead | None = Field(
        default=None,
        description="`auto`: where that pays, it is asked before a probe whether later ones can "
        "find anything.",
    )
    hot_keys: HotKeyDealing | None = Field(
        default=None,
        description="`auto`: on several hosts, new rows of frequent values are dealt to several of "
        "them where that pays.",
    )


class SettingsOut(Document):
    """Planning settings; ``mode`` and ``epoch_batches`` are fixed when the process starts."""

    optimizer: Open[Optimizer]
    objective: Open[Objective]
    parallelism: int
    switching: float
    memory: float | None
    copies: int | None
    intermediate_results: int | None = None
    solver: Open[Solver]
    backfill: Open[Backfilling]
    backfill_horizon: float
    substreams: int = 1
    revision_gain: float | None = None
    approval: Open[Approval] = Approval.AUTOMATIC
    overload: Open[Overload] = Overload.WAIT
    allocation: Open[Allocation] = Allocation.FAIR
    latency_goal: float = 2.0
    capacity: float | None = None
    look_ahead: Open[LookingAhead] = LookingAhead.NEVER
    hot_keys: Open[HotKeyDealing] = HotKeyDealing.NEVER
    mode: Open[Literal["live", "step"]]
    epoch_batches: int

"""What the service answers, as far as the client reads it; fields it does not know are kept."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of all answers. A newer service may say more: that is kept, not refused."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def document(self) -> dict[str, Any]:
        """The answer as JSON, everything included."""
        return self.model_dump(mode="json")


class Column(Answer):
    """A column; ``type`` is one of Spark's simple type strings."""

    name: str
    type: str


class StreamInfo(Answer):
    """A registered stream; ``lateness`` is a duration or ``unbounded``."""

    name: str
    columns: list[Column]
    event_time: str | None = None
    lateness: str | None = None
    source: dict[str, Any] = Field(default_factory=dict)
    input_tuples: int | None = None
    late_tuples: int | None = None
    invalid_tuples: int | None = None


class ProblemInfo(Answer):
    """Why a query was rejected."""

    code: str = ""
    message: str = ""
    field: str = ""
    remedy: str = ""


class NormalisedInfo(Answer):
    """How the planner understood a query."""

    output: list[Column] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


class QueryInfo(Answer):
    """A query, how it was understood, and how far it has come."""

    id: str
    status: str
    sql: str | None = None
    window: str | dict[str, str] | None = None
    expires_at: str | None = None
    normalised: NormalisedInfo = NormalisedInfo()
    activated_batch: int | None = None
    expired_batch: int | None = None
    complete_from: str | None = None
    complete: str | None = None
    results: int = 0
    problem: ProblemInfo | None = None


class EpochSummary(Answer):
    """A line of the epochs' list."""

    epoch: int
    first_batch: int | None = None
    optimizer: str
    objective: str = ""
    parallelism: int | None = None
    queries: list[str] = Field(default_factory=list)
    cost: float
    individual_cost: float | None = None
    gap: float | None = None
    solve_ms: float | None = None
    method: str = ""
    fallback: str = ""


class EpochInfo(EpochSummary):
    """A published epoch with its plan; ``explain`` is the plan's explanation as data."""

    explain: dict[str, Any] = Field(default_factory=dict)
    rejected: dict[str, ProblemInfo] = Field(default_factory=dict)


class CurrentEpoch(Answer):
    """The epoch that the runtime is in, and the published one whose rules it goes by."""

    running: int
    epoch: EpochInfo
    runtime: dict[str, Any] | None = None


class PlanningSettings(Answer):
    """What can be switched at run time; takes effect at the next planned epoch."""

    optimizer: str
    objective: str
    parallelism: int
    mode: str = ""
    epoch_batches: int | None = None


class DryRun(Answer):
    """The plan that would be made."""

    optimizer: str
    queries: list[str] = Field(default_factory=list)
    cost: float
    individual_cost: float | None = None
    shared_cost: float | None = None
    gap: float | None = None
    solve_ms: float | None = None
    method: str = ""
    rejected: dict[str, ProblemInfo] = Field(default_factory=dict)
    explain: dict[str, Any] = Field(default_factory=dict)
    text: str = ""

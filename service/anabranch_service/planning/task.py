"""The task of planning one epoch: input of a plan and its explanation, and its cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.plans.plan import Formulation
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.protocol.measurements import StreamSample
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_planner.cost.footprint import FootprintError
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.sampling import estimate
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.plans.decisions import Decisions, from_document
from anabranch_service.registry.records import EpochRecord, QueryRecord
from anabranch_service.registry.slo import freshness_of

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExplanationBounds:
    """Bounds of an explanation: queries with shares, entries of each list of a diff, reasons."""

    shares: int | None
    changes: int | None
    reasons: int | None


FULL = ExplanationBounds(shares=None, changes=None, reasons=None)
#: The bounds of an epoch's record.
SUMMARY = ExplanationBounds(shares=200, changes=25, reasons=25)


@dataclass(frozen=True, slots=True)
class RunningEpoch:
    """A published epoch that a plan is charged for changing, and compared with.

    Attributes:
        queries: its queries that can still be read.
        decisions: of its plan; None where its record has none that can be read.
        problem: why they can't be read; empty where they can.
    """

    record: EpochRecord
    queries: tuple[JoinQuery, ...]
    decisions: Decisions | None
    problem: str = ""

    @classmethod
    def of(cls, record: EpochRecord, queries: tuple[JoinQuery, ...]) -> RunningEpoch:
        """The epoch of ``record``; decisions that can't be read are logged."""
        try:
            return cls(record, queries, decisions_of(record))
        except FootprintError as cause:
            _LOG.warning("planned without decisions", epoch=record.epoch, error=str(cause))
            return cls(record, queries, None, str(cause))


def decisions_of(record: EpochRecord) -> Decisions:
    """The decisions of a published plan.

    Raises:
        FootprintError: its record has none, or none that can be read.
    """
    return from_document(record.decisions or {})


@dataclass(frozen=True, slots=True)
class PlanTask:
    """Input of a plan and of its explanation.

    Attributes:
        queries: the queries to plan. ``rejected``: unparsable queries, with the reason.
        streams: every usable stream.
        seconds: time limit of one solve; 0: without a solver.
        epoch: the epoch to plan for.
        statistics_epoch: the epoch in which statistics were measured; None: without measurements.
        batches: number of batches in the history of ``statistics``.
        samples: stream -> its newest sample; the shares of relations are estimated from them.
        running: the published epoch; None: none is.
        sinks: query id -> its sink. ``freshness``: query id -> alias -> maximum age of its tuples
            in results (microseconds). ``past``: queries that emit the past as well.
        formulation: how the joint plan is solved.
        widths: relation or stream -> bytes per tuple, in place of estimates from column types.
        limits: bounds of the explanation.
    """

    queries: tuple[JoinQuery, ...]
    streams: Mapping[str, Stream]
    statistics: Statistics
    options: PlanningSettings
    seconds: float
    epoch: int = 0
    rejected: Mapping[str, ProblemRecord] = field(default_factory=dict)
    statistics_epoch: int | None = None
    batches: int = 0
    samples: Mapping[str, StreamSample] = field(default_factory=dict)
    running: RunningEpoch | None = None
    sinks: Mapping[str, SinkSpec] = field(default_factory=dict)
    freshness: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    past: frozenset[str] = frozenset()
    formulation: Formulation = Formulation.TIGHT
    widths: Mapping[str, float] = field(default_factory=dict)
    limits: ExplanationBounds = SUMMARY

    @property
    def decisions(self) -> Decisions | None:
        """The decisions of the running epoch; None: there are none."""
        return None if self.running is None else self.running.decisions

    def estimated(self) -> PlanTask:
        """The task with the shares of relations estimated from samples."""
        return replace(self, statistics=estimate(self.statistics, self.queries, self.samples))

    def on_terms_of(self, records: Sequence[QueryRecord]) -> PlanTask:
        """The task with the sinks, freshness and past of the queries of ``records``."""
        return replace(
            self,
            sinks={record.id: record.sink.to_sink() for record in records},
            freshness={r.id: freshness_of(r.slo) for r in records if r.slo.freshness},
            past=frozenset(r.id for r in records if r.emits_past),
        )


def cost_model(
    task: PlanTask,
    queries: Sequence[JoinQuery],
    parallelism: int,
    substreams: Sequence[Substreams],
) -> CostModel:
    """The model that ``task`` is planned by.

    Args:
        substreams: the division of each start's tuples in the plan that is priced.
    """
    return CostModel(
        task.statistics,
        objective=task.options.objective,
        parallelism=parallelism,
        bounds=LoosestBounds(queries),
        substreams=substreams,
    )

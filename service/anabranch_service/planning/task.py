"""Planning task: the input of a plan and of its explanation, and the cost model for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from anabranch_contract.connectors.sinks import SinkKind, SinkSpec
from anabranch_contract.plans.plan import Formulation
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.protocol.measurements import StreamSample
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.sampling import estimate
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.plans.decisions import Decisions, DecisionsError, from_document
from anabranch_service.registry.records import EpochRecord, QueryRecord
from anabranch_service.registry.slo import freshness_of

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExplanationBounds:
    """Size limits of an explanation: queries with cost shares, entries per list, reasons."""

    shares: int | None
    changes: int | None
    reasons: int | None


FULL = ExplanationBounds(shares=None, changes=None, reasons=None)
#: Limits of the explanation in an epoch's record.
SUMMARY = ExplanationBounds(shares=200, changes=25, reasons=25)


@dataclass(frozen=True, slots=True)
class RunningEpoch:
    """The running epoch: a new plan is compared with it, and charged for changes from it.

    Attributes:
        queries: its queries that are still readable.
        decisions: the plan's probe orders and stores in the planner's form; None: unreadable.
        problem: why the decisions are unreadable; empty if they are readable.
    """

    record: EpochRecord
    queries: tuple[JoinQuery, ...]
    decisions: Decisions | None
    problem: str = ""

    @classmethod
    def of(cls, record: EpochRecord, queries: tuple[JoinQuery, ...]) -> RunningEpoch:
        """Return the running epoch of ``record``; unreadable decisions are logged."""
        try:
            return cls(record, queries, decisions_of(record))
        except DecisionsError as cause:
            _LOG.warning("planned without decisions", epoch=record.epoch, error=str(cause))
            return cls(record, queries, None, str(cause))


def decisions_of(record: EpochRecord) -> Decisions:
    """Return the probe orders and stores of a published plan, from which the next plan starts.

    Raises:
        DecisionsError: the record has no readable decisions.
    """
    return from_document(record.decisions or {})


@dataclass(frozen=True, slots=True)
class PlanTask:
    """Input of a plan and of its explanation.

    Attributes:
        queries: the queries to plan. ``rejected``: unparsable queries, with the reason.
        streams: every usable stream.
        seconds: time limit of one solve; 0: no solver.
        epoch: the epoch to plan for.
        statistics_epoch: the epoch in which the statistics were measured; None: not measured.
        batches: number of batches in the history of ``statistics``.
        samples: stream -> its newest sample, from which the selectivities of filters are estimated.
        running: the newest published epoch; None: none is published.
        sinks: query id -> its sink. ``freshness``: query id -> alias -> maximum age of its tuples
            in results (microseconds). ``past``: queries that also emit results over past tuples.
            formulation: how the joint plan is solved. widths: relation or stream -> bytes per
            tuple, replacing estimates from column types. begun: query id -> its first epoch; None:
            it is not published yet. limits: size limits of the explanation.
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
    begun: Mapping[str, int | None] = field(default_factory=dict)
    limits: ExplanationBounds = SUMMARY

    @property
    def decisions(self) -> Decisions | None:
        """Decisions of the running epoch's plan; None if there is none, or they are unreadable."""
        return None if self.running is None else self.running.decisions

    def estimated(self) -> PlanTask:
        """Return the task, with selectivities of local filters estimated from samples."""
        return replace(self, statistics=estimate(self.statistics, self.queries, self.samples))

    def on_terms_of(self, records: Sequence[QueryRecord]) -> PlanTask:
        """Return the task, with ``sinks``, ``freshness`` and ``past`` taken from query ``records``.

        A sink is written by one run of a query at a time: the results of a run that waits for the
        place of another one are only counted while both are planned.
        """
        planned = {record.id for record in records}
        sinks = {
            r.id: SinkSpec(SinkKind.COUNT)
            if r.shares_sink and r.replaces in planned
            else r.sink.to_sink()
            for r in records
        }
        return replace(
            self,
            sinks=sinks,
            freshness={r.id: freshness_of(r.slo) for r in records if r.slo.freshness},
            past=frozenset(r.id for r in records if r.emits_past),
        )


def cost_model(
    task: PlanTask, queries: Sequence[JoinQuery], parallelism: int, substreams: Sequence[Substreams]
) -> CostModel:
    """Return the cost model for planning ``task``.

    Args:
        substreams: the substreams (of streams split by key values) in the plan to be priced.
    """
    return CostModel(
        task.statistics,
        objective=task.options.objective,
        parallelism=parallelism,
        bounds=LoosestBounds(queries),
        substreams=substreams,
    )

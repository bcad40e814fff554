"""Cost constants of the planner (such as CPU seconds per probe), fitted to measurements. They are
needed for the objective ``seconds``, and for substreams, which are always priced in seconds.

In live mode the constants are fitted to the newest periods. In step mode the planner's defaults
apply: measured times differ from run to run, and a replay must repeat byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch_contract.plans.plan import Objective, Plan
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.mirs import MirId
from anabranch_contract.rest.planning.plans import CostsRecord, CpuRecord
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.fit import fit
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.steps import trails
from anabranch_planner.cost.validate import priced
from anabranch_service.planning.rates import read_all
from anabranch_service.planning.task import PlanTask

#: Number of periods to fit constants to: more would add parsing time and little precision.
FITTED = 5


def _needed(options: PlanningSettings) -> bool:
    return options.objective is Objective.SECONDS or options.substreams > 1


def newest(periods: Sequence[str], options: PlanningSettings, mode: Mode) -> list[Interim]:
    """Parse the newest :data:`FITTED` of the ``periods`` (JSON texts, oldest first), for the fit.

    Empty if no constants are needed, or in step mode.
    """
    if not _needed(options) or mode is not Mode.LIVE:
        return []
    return read_all(periods[-FITTED:], Interim)


def timed(
    statistics: Statistics,
    snapshot: Snapshot | None,
    periods: Sequence[Interim],
    options: PlanningSettings,
) -> Statistics:
    """Return ``statistics`` with cost constants and the number of batches so far.

    Args:
        snapshot: statistics of the newest ended epoch; None: nothing is added.
        periods: measurements to fit the constants to; empty in step mode.
    """
    if snapshot is None:
        return statistics
    known = CostConstants(batches=float(max(snapshot.total_batches, 1)))
    if _needed(options):
        ahead = 1.0 if statistics.ahead is None else statistics.ahead.length
        known = constants(snapshot, periods, options, ahead)
    return replace(statistics, constants=known)


def constants(
    snapshot: Snapshot, periods: Sequence[Interim], options: PlanningSettings, ahead: float
) -> CostConstants:
    """Fit the cost constants to ``periods``.

    Args:
        ahead: length of the period for which plans are priced, in units of the whole history.
    """
    steps = [step.counts for period in periods for step in period.steps]
    looked: dict[MirId, list[int]] = {}
    for store in snapshot.stores.values():
        for reads in store.reads.values():
            counts = looked.setdefault(MirId(store.mir), [0, 0])
            counts[0] += reads.looked
            counts[1] += reads.probes
    batches = max(snapshot.total_batches * ahead, 1.0)
    known = CostConstants(
        calls=batches * options.parallelism,
        batches=float(max(snapshot.total_batches, 1)),
        looks={mir: looks / probes for mir, (looks, probes) in sorted(looked.items()) if probes},
    )
    inserts, merges = [p.inserts for p in periods], [p.merges for p in periods]
    return fit(steps, inserts, merges, known)


def cpu_record(
    plan: Plan, individual: Plan, queries: Sequence[JoinQuery], task: PlanTask, model: CostModel
) -> CpuRecord | None:
    """Return the CPU seconds expected of both plans in the next epoch; None if unknown.

    Args:
        model: cost model of ``plan``, with any objective.
    """
    known = task.statistics
    if known.ahead is None or known.constants is None:
        return None
    in_seconds = model.charging(Objective.SECONDS)

    def price(one: Plan) -> float:
        return priced(one, trails(one, queries), in_seconds.divided(one.substreams))

    return CpuRecord(plan=price(plan), individual=price(individual))


def costs_record(statistics: Statistics, objective: Objective) -> CostsRecord | None:
    """Return the cost constants as stored with an epoch; None if the objective counts tuples."""
    known = statistics.constants
    if known is None or objective is not Objective.SECONDS:
        return None
    return CostsRecord.of(known)

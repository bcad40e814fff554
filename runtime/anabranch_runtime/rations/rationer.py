"""Choice of a batch's rations (load shedding): the share of each goal's tuples that probe.

The service plans the best rations for every budget of probing time, and publishes them as a
schedule (``contract.plans.rations``). The runtime chooses the budget before each batch, from
measurements of the last batches (``overload``). Without a schedule no tuples are withheld.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from anabranch_contract.plans.rations import Overload, Ration, RationSchedule
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.intake import StreamIntake
from anabranch_contract.protocol.progress import Mode, Rationing
from anabranch_runtime.control import Control
from anabranch_runtime.rations.overload import BatchWork, LoadState, observe
from anabranch_runtime.recovery.journal import KnownLoad

#: Least share of tuples that probe: a sample to estimate withheld results and selectivities.
SAMPLE = 1 / 256


class Rationer:
    """Chooses rations before each batch: per goal, the share of tuples that probe.

    Attributes:
        schedule: the newest schedule; None: no load shedding, input waits under overload.
    """

    def __init__(self, control: Control, mode: Mode, known: KnownLoad | None = None) -> None:
        """Start from ``known``, the load recorded by the previous driver, if there is one."""
        self._control, self._live = control, mode is Mode.LIVE
        self.schedule: RationSchedule | None = None
        self._load = LoadState() if known is None or not self._live else _resumed(known)
        self._rations: tuple[Ration, ...] = ()
        self._ended = time.monotonic()

    @property
    def length(self) -> float | None:
        """Maximum seconds of a batch by the promised latency; None: no latency is promised."""
        schedule = self.schedule
        return None if schedule is None or not self._live else schedule.latency / 2

    @property
    def catches_up(self) -> bool:
        """Whether the policy is to compute withheld results later (catch-up)."""
        return self.schedule is not None and self.schedule.catch_up

    @property
    def rationing(self) -> Rationing:
        """Policy, budget and load of load shedding, for the progress report."""
        schedule, load = self.schedule, self._load
        if schedule is None:
            return Rationing()
        return Rationing(
            policy=Overload.CATCH_UP if schedule.catch_up else Overload.RATION,
            budget=self._budget(schedule),
            needed=load.needed,
            overloaded=bool(self._rations),
            latency=schedule.latency if self._live else None,
            rations=self._rations,
        )

    @property
    def known(self) -> KnownLoad | None:
        """Load to commit with the batch, for a restart; None without load shedding."""
        if self.schedule is None or self.schedule.budget is not None or not self._live:
            return None
        return KnownLoad(self._load.budget, self._load.savable, self._load.overloaded)

    def rations(self, ruleset: Ruleset, never: Collection[str] = frozenset()) -> tuple[Ration, ...]:
        """Choose the share of probing tuples per goal of the next batch (missing: 1).

        Args:
            never: queries exempt from load shedding.
        """
        schedule = self.schedule = self._control.ration_schedule()
        if schedule is None:
            self._load, self._rations, self._ended = LoadState(), (), time.monotonic()
            return ()
        goals = {
            (query.id, label)
            for query in ruleset.queries
            if query.registered not in never
            for _, label, _ in query.members
        }
        wanted = schedule.rations(self._budget(schedule))
        self._rations = tuple(
            Ration(r.query, r.start, max(r.share, SAMPLE), r.ranking)
            for r in wanted
            if (r.query, r.start) in goals
        )
        return self._rations

    def done(
        self, rows: int, seconds: float, probing: float, streams: Iterable[StreamIntake]
    ) -> None:
        """Update the load by a committed batch, with ``rows`` and seconds of ``probing``."""
        now = time.monotonic()
        elapsed, self._ended = now - self._ended, now
        schedule, stand = self.schedule, list(streams)
        if schedule is None or not self._live:
            return
        work = BatchWork(
            rows,
            seconds,
            probing,
            self._load.budget if self._rations else 1.0,
            schedule.rationable,
            elapsed,
            sum(s.waiting for s in stand),
            max((s.seconds for s in stand), default=0.0),
        )
        self._load = observe(self._load, work, schedule.latency)

    def _budget(self, schedule: RationSchedule) -> float:
        if schedule.budget is not None:
            return schedule.budget
        # In step mode (deterministic replay) no decision may depend on measured times.
        return self._load.budget if self._live else 1.0


def _resumed(known: KnownLoad) -> LoadState:
    """Restore the load at a restart; the number of waiting rows may have changed since."""
    return LoadState(known.budget, 0.0, known.overloaded, waiting=None, savable=known.savable)

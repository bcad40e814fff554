"""Maintained tables in this process: rounds of given joined rows, restarts, lags, checkpoints."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pyarrow as pa

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Activation, ViewRows
from anabranch_contract.queries.joins import Stream
from anabranch_runtime.driver.tables import MaintainedTables
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sinks.delivery import Write, WrittenVersion
from anabranch_runtime.sinks.joined_rows import JoinedRows
from anabranch_runtime.state.manifest import State, StreamState
from anabranch_runtime.state.tables import TablesState
from anabranch_runtime.storage.segment import PackWriter, Segment
from anabranch_runtime.views import keeper
from anabranch_runtime.views.keeper import Keeper, News, TablesStatus

Publish = Callable[[Mapping[str, ViewRows]], None]
Follow = Callable[[Sequence[WrittenVersion]], None]


@dataclass(slots=True)
class Here:
    """A peer that includes rounds in this process, when they are committed."""

    keeper: Keeper
    _statuses: list[TablesStatus] = field(default_factory=list)

    def load(self, tables: TablesState, next_batch: int) -> None:
        """As :class:`.Peer`."""
        self.keeper.load(tables, next_batch)

    def hear(self, news: News) -> None:
        """As :class:`.Peer`; adds the round at once."""
        self.keeper.hear(news)
        while not self.keeper.idle:
            self.keeper.work()
        self._statuses.append(self.keeper.status())

    def take(self) -> list[TablesStatus]:
        """As :class:`.Peer`."""
        found, self._statuses = self._statuses, []
        return found

    def drain(self) -> None:
        """As :class:`.Peer`."""
        self.keeper.work(at_once=True)
        while not self.keeper.settled:
            self.keeper.work()
        self.keeper.publish_all()
        self._statuses.append(self.keeper.status())

    def close(self) -> None:
        """As :class:`.Peer`."""


def here(
    root: Path,
    results: Path,
    writers: Mapping[SinkKind, Write],
    publish: Publish,
    follow: Follow = lambda _: None,
) -> MaintainedTables:
    """Return tables that are maintained in this process."""
    return MaintainedTables(root, Here(Keeper(root, results, writers, publish, follow)))


class Lagging(Here):
    """A peer that includes rounds only sometimes, and writes checkpoints at random.

    Attributes:
        rng: generator of these decisions.
    """

    rng = Random(0)

    def hear(self, news: News) -> None:
        """Include all rounds, some, or none."""
        self.keeper.hear(news)
        for _ in range(self.rng.choice((0, 0, 1, 2, 100))):
            if self.keeper.idle:
                break
            self._work()
        self._statuses.append(self.keeper.status())

    def _work(self) -> None:
        before, keeper.ROUNDS = keeper.ROUNDS, self.rng.choice((0, 2, keeper.ROUNDS))
        try:
            self.keeper.work()
        finally:
            keeper.ROUNDS = before


def lagging(
    root: Path,
    results: Path,
    rng: Random,
    publish: Publish = lambda _: None,
    follow: Follow = lambda _: None,
    writers: Mapping[SinkKind, Write] | None = None,
) -> MaintainedTables:
    """MaintainedTables that lag behind at random."""
    peer = Lagging(Keeper(root, results, writers or {}, publish, follow))
    peer.rng = rng
    return MaintainedTables(root, peer)


@dataclass(slots=True)
class TableWorld:
    """Maintained tables of a pipeline in ``folder``, which has a state but runs no batches.

    Attributes:
        ruleset: the present ruleset.
        queries: activations of the present queries.
        make: function that makes the tables; None: lagging ones in this process.
    """

    folder: Path
    ruleset: Ruleset
    rng: Random = field(default_factory=lambda: Random(0))
    publish: Publish = lambda _: None
    follow: Follow = lambda _: None
    writers: dict[SinkKind, Write] = field(default_factory=dict)
    queries: dict[str, Activation] = field(default_factory=dict)
    make: Callable[[], MaintainedTables] | None = field(init=False, default=None)
    state: State = field(init=False, default_factory=State)
    #: The earlier states, newest first.
    earlier: list[State] = field(init=False, default_factory=list)
    tables: MaintainedTables = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "results").mkdir(parents=True, exist_ok=True)
        self.begin()
        self.state = self.tables.entered(self.state, self.ruleset)
        self.tables.committed(self.state, self.ruleset)

    @property
    def results(self) -> Path:
        """The results directory."""
        return self.folder / "results"

    def begin(self) -> None:
        """Start the tables from the state, as a new process would."""
        if self.make is not None:
            self.tables = self.make()
        else:
            self.tables = lagging(
                *(self.folder / "state", self.results, self.rng),
                *(self.publish, self.follow, self.writers),
            )
        self.tables.begin(self.state)

    def restart(self) -> None:
        """Stop the tables, and start them again."""
        self.tables.close()
        self.begin()

    def roll_back(self) -> None:
        """Go back by one batch, and start again."""
        self.tables.close()
        self.state = self.earlier.pop()
        self.begin()

    def stage(self, joined: Mapping[str, pa.Table]) -> list[Segment]:
        """Write the joined rows of the next batch, as its tasks would."""
        name, batch = f"segments/{uuid.uuid4().hex}.pack", self.state.next_batch
        with PackWriter(self.folder / "state", name) as pack:
            for join, rows in joined.items():
                writer = JoinedRows(pack, join, batch, rows.schema, 1 << 20)
                for part in rows.to_batches():
                    writer.add(part)
                writer.close()
        return pack.segments

    def feed(
        self,
        joined: Mapping[str, pa.Table],
        streams: Mapping[Stream, int | None] | None = None,
        now: int = 0,
        feeds: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Commit a batch at the time ``now``.

        Args:
            streams: watermarks of streams after the batch.
            feeds: join whose rows several queries share -> these queries.
        """
        report = TaskReport(joined=self.stage(joined), feeds=dict(feeds or {}))
        known = {str(s.name): StreamState(s, floor=mark) for s, mark in (streams or {}).items()}
        state = replace(
            self.state,
            next_batch=self.state.next_batch + 1,
            streams=self.state.streams | known,
            queries=self.queries,
        )
        self.earlier.append(self.state)
        self.state = self.tables.settled(state, self.ruleset, [report], now)
        self.tables.committed(self.state, self.ruleset)

"""A driver over real files and Redis Streams (:mod:`.fed`), with epochs published before
the run.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import Stream
from anabranch_planner.passes import parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_runtime.control import Control
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.feeds import Feeds
from tests.support.cases.random_plans import random_plan
from tests.support.oracles.invariants import check_state
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.fed import KEYS, Fed


class FedEpochs(Fed):
    """A fed pipeline whose registrations change during the run, with an epoch every few batches."""

    #: Names of the streams.
    names: Iterable[str]
    #: The epochs that have a ruleset.
    epochs: Iterable[int] = range(0, 40, 2)
    #: Stream -> the epochs from which on it has its next columns.
    since: Mapping[str, Sequence[int]]
    chance: Random
    #: Number of the last row.
    numbers = 0
    _published = False

    @abstractmethod
    def _rules(self, epoch: int) -> Ruleset:
        """Return the ruleset of an epoch."""

    @abstractmethod
    def record(self, name: str) -> StreamRecord:
        """Return a stream as registered now."""

    def _step(self, name: str, epoch: int) -> int:
        return sum(since <= epoch for since in self.since[name])

    def _present(self, name: str) -> int:
        return self._step(name, self.driver.state.epoch)

    def _compiled(
        self,
        epoch: int,
        texts: Mapping[str, str],
        specs: Sequence[Stream],
        past: Collection[str] = (),
    ) -> Ruleset:
        """Return a random plan of the queries ``texts`` (by name) as the ruleset of an epoch."""
        streams = {str(s.name): s for s in specs}
        queries = [parse_sql(name, text, streams) for name, text in sorted(texts.items())]
        plan = random_plan(queries, self.chance, mirs=self.chance.choice((0.0, 0.7, 1.0)))
        return compile_ruleset(
            plan, queries, specs, epoch=epoch, parallelism=1, sinks={}, past=past
        )

    def _add_table(self, table: pa.Table) -> None:
        """Add a file for ``R`` whose time is that of its last row."""
        path = self.home / "R" / f".{self.numbers}"
        pq.write_table(table, path, write_page_checksum=True, compression=None, row_group_size=3)
        os.utime(path, ns=(0, 10**9 * self.numbers))
        path.rename(path.with_name(f"{self.numbers}.parquet"))

    def start(self) -> None:
        if not self._published:
            for epoch in self.epochs:
                self.server.set(KEYS.ruleset(epoch), rulesets.dumps(self._rules(epoch)))
                self.server.zadd(KEYS.published, {str(epoch): epoch})
            self._published = True
        settings = DriverSettings(
            self.home / "state",
            self.home / "results",
            epoch_seconds=3600.0,
            epoch_batches=3,
            fanout=2,
            patience=5.0,
            target_latency=None,
        )
        settings.state.mkdir(parents=True, exist_ok=True)
        self.driver = Driver(settings, Control(self.url, "test"))
        self.driver.announce()
        self.read_anew()

    def read_anew(self) -> None:
        """Open the sources again, as the streams are registered now."""
        records = [self.record(name) for name in self.names]
        state = str(self.home / "state")
        self.reader = Feeds(
            *(records, 2, self.url, "test", state, OPEN, self.driver.progress.rate_limiter.input),
            live=False,
        )
        feeds = frozenset(self.reader.feeds)
        self.driver.read(Sources({"feeds": self.reader}, 2, tuple(records), feeds))

    def _account(self) -> None:
        check_state(self.driver.state)

    def _by_batch(self, query: str) -> list[tuple[int, tuple[Any, ...]]]:
        """Return batch and values of all results of a query."""
        found = []
        for path in sorted((self.home / "results" / query).glob("*.parquet")):
            batch = int(path.name.split(".")[0].split("-")[0])
            rows = duckdb.read_parquet(str(path)).fetchall()
            found += [(batch, row) for row in rows]
        return found

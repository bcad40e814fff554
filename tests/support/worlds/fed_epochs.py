"""A world of feeds whose epochs have been published before the run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import duckdb

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.control import Control
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.feeds import Feeds
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.fed import KEYS, Fed


class FedEpochs(Fed):
    """Feeds whose registrations change during the run, with an epoch every few batches."""

    #: Names of the streams.
    names: Iterable[str]
    #: The epochs with a ruleset of their own.
    epochs: Iterable[int] = range(0, 40, 2)
    _published = False

    @abstractmethod
    def _rules(self, epoch: int) -> Ruleset:
        """The ruleset of an epoch."""

    @abstractmethod
    def record(self, name: str) -> StreamRecord:
        """A stream as registered now."""

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
        """Read the streams as they are registered now."""
        records = [self.record(name) for name in self.names]
        state = str(self.home / "state")
        self.reader = Feeds(
            *(records, 2, self.url, "test", state, OPEN, self.driver.progress.rate_limiter.input),
            live=False,
        )
        feeds = frozenset(self.reader.feeds)
        self.driver.read(Sources({"feeds": self.reader}, 2, tuple(records), feeds))

    def _account(self) -> None:
        self.driver.state.validate()

    def _by_batch(self, query: str) -> list[tuple[int, tuple[Any, ...]]]:
        """Batch and values of all results of a query."""
        found = []
        for path in sorted((self.home / "results" / query).glob("*.parquet")):
            batch = int(path.name.split(".")[0].split("-")[0])
            rows = duckdb.read_parquet(str(path)).fetchall()
            found += [(batch, row) for row in rows]
        return found

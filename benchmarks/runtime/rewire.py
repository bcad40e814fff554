"""Time of the first batches under a changed ruleset, relative to neighbours under unchanged ones.

Five TPC-H queries run live, without waiting for the planner. Whenever an epoch begins, one thing is
changed in turn: the optimiser, the number of partitions per store, and a further query, which is
added or deleted; so after the two epochs that a plan takes, nearly every epoch begins with changed
rules. In the middle of each epoch its ruleset is revised (``random_revisions``). A batch's time is
its cycle, from the previous commit to its own. State grows all the time, so the first batch under a
changed ruleset is compared with the median of the nearest steady batches on both sides. A batch is
steady if neither it nor the batch before it is the first of an epoch or of a ruleset.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anabranch_client.replay import tpch
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.control import Control
from benchmarks.command import Benchmark, made, quantile, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime.command import master, run
from benchmarks.runtime.overlapping import OVERLAPPING
from benchmarks.runtime.random_revisions import RandomRevisions
from benchmarks.session import BatchLog, Session, session

#: Number of steady batches on either side with which a rewired batch is compared.
_NEAR = 3
#: The query that is added and deleted.
_GUEST = OVERLAPPING[2]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, default=0.2, help="TPC-H's")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--epoch-batches", type=int, default=6)
    parser.add_argument("--runs", type=int, default=3)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all rounds; return the combined figures."""
    streams = tpch.generate(made(home / "input"), options.scale, options.batches)
    found: list[dict[str, Any]] = []
    steady: list[float] = []
    for number in range(options.runs):
        try:
            rewired, calm = _run(options, home / "run", streams)
        finally:
            shutil.rmtree(home / "run", ignore_errors=True)
        found += [{"run": number, **one} for one in rewired]
        steady += calm
        ratios = [one["ratio"] for one in rewired]
        tell(f"run {number + 1}: {len(ratios)} rewires, median {statistics.median(ratios):.2f}")
    kinds = sorted({one["kind"] for one in found})
    return {
        "rewires": found,
        "all": _summary([one for one in found if one["kind"] != "revision"]),
        "kinds": {kind: _summary([o for o in found if o["kind"] == kind]) for kind in kinds},
        # The noise: ratios of steady batches to their neighbours.
        "steady": {"ratio": spread(steady, 3), "p90": round(quantile(steady, 0.9), 3)},
    }


def _summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [one["ratio"] for one in found]
    return {
        "count": len(found),
        "ratio": spread(ratios, 3),
        "p90": round(quantile(ratios, 0.9), 3),
        "seconds": spread((one["seconds"] for one in found), 3),
        "enter_seconds": spread((one["enter_seconds"] for one in found), 3),
    }


@dataclass(slots=True)
class _Changes:
    """Makes the changes of plans, one per call."""

    system: Session
    parallelism: int
    made: int = 0
    guests: list[DemoQuery] = field(default_factory=list)
    present: bool = False

    def next(self) -> None:
        turn, number = self.made % 3, self.made // 3
        client = self.system.client
        if turn == 0:
            client.update_settings(optimizer="clash" if number % 2 else "shared")
        elif turn == 1:
            client.update_settings(parallelism=self.parallelism + 1 - number % 2)
        elif self.present:
            client.delete_query(self.guests[-1].name)
            self.present = False
        else:
            self.guests.append(replace(_GUEST, name=f"guest{number}"))
            self.system.register(self.guests[-1:])
            self.present = True
        self.made += 1


def _run(
    options: argparse.Namespace, home: Path, streams: tuple[RecordedStream, ...]
) -> tuple[list[dict[str, Any]], list[float]]:
    with session(
        home,
        streams,
        tpch.QUERIES,
        master=master(options),
        parallelism=options.parallelism,
        epoch_batches=options.epoch_batches,
    ) as system:
        system.start()
        system.gate(None)
        # The service's own revisions would interfere with those published here.
        system.client.update_settings(revision_gain="none")
        changes, epoch = _Changes(system, options.parallelism), 0
        revisions = RandomRevisions(system)
        while True:
            progress = system.wait(
                lambda p, e=epoch: p.epoch > e or p.committed >= options.batches  # type: ignore[misc]
            )
            if progress.committed >= options.batches:
                break
            epoch = progress.epoch
            changes.next()
            middle = progress.committed + options.epoch_batches // 2
            system.wait(lambda p, m=middle: p.committed >= min(m, options.batches))  # type: ignore[misc]
            revisions.publish(epoch, [*tpch.QUERIES, *changes.guests])
        system.finish(tpch.QUERIES)
        system.check_guests(changes.guests)
        log, rules = system.log(), _Rules(system)
        return _rewires(log, rules, options.epoch_batches)


class _Rules:
    """The published rulesets, for comparison."""

    def __init__(self, system: Session) -> None:
        self._control = Control(system.pipeline.redis_url, system.pipeline.spec.namespace)
        self._known: dict[str, dict[str, Any]] = {}

    def of(self, ruleset: str) -> dict[str, Any]:
        """Return the document of ``ruleset`` without its name."""
        if ruleset not in self._known:
            document = json.loads(self._control.ruleset_text(RulesetId.parse(ruleset)))
            document.pop("epoch", None)
            document.pop("revision", None)
            self._known[ruleset] = document
        return self._known[ruleset]

    def difference(self, one: str, other: str) -> str:
        """Return the kind of change between two rulesets; empty if they are equal."""
        if RulesetId.parse(other).revision:
            return "revision"
        before, after = self.of(one), self.of(other)
        if before == after:
            return ""
        if [q["id"] for q in before["queries"]] != [q["id"] for q in after["queries"]]:
            return "queries"
        if {s["partitions"] for s in before["stores"]} != {
            s["partitions"] for s in after["stores"]
        }:
            return "layout"
        return "plan"


def _rewires(
    log: list[BatchLog], rules: _Rules, every: int
) -> tuple[list[dict[str, Any]], list[float]]:
    """Return the rewired batches with their ratios to neighbours, and ratios of steady batches."""
    cycle = {b.batch: b.committed_at - a.committed_at for a, b in itertools.pairwise(log)}
    kinds: dict[int, str] = {}
    for a, b in itertools.pairwise(log):
        if a.ruleset != b.ruleset and (kind := rules.difference(a.ruleset, b.ruleset)):
            kinds[b.batch] = kind
    starts = {b.batch for a, b in itertools.pairwise(log) if a.epoch != b.epoch}
    # The first epoch is a warm-up.
    steady = [b for b in cycle if b >= every and b not in starts and not {b, b - 1} & kinds.keys()]

    def ratio(batch: int) -> float | None:
        """Return the batch's time relative to its neighbours' median; None if it has too few."""
        below = [cycle[b] for b in steady if b < batch][-_NEAR:]
        above = [cycle[b] for b in steady if b > batch][:_NEAR]
        if not below or not above:
            return None
        return cycle[batch] / statistics.median([*below, *above])

    by_number = {b.batch: b for b in log}
    found = [
        {
            "batch": batch,
            "kind": kind,
            "ratio": round(value, 3),
            "seconds": round(cycle[batch], 3),
            "enter_seconds": by_number[batch].enter,
        }
        for batch, kind in kinds.items()
        if batch >= every and (value := ratio(batch)) is not None
    ]
    calm = [value for batch in steady if (value := ratio(batch)) is not None]
    return found, calm


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per kind of change, and one for the noise."""
    groups = [("all but revisions", entry["all"]), *entry["kinds"].items()]
    rows = [
        (
            *(name, f"{one['count']}", shown(one["ratio"], 2), f"{one['p90']:.2f}"),
            shown(one["seconds"], 2),
            shown(one["enter_seconds"], 3),
        )
        for name, one in groups
    ]
    steady = entry["steady"]
    rows.append(("no change", "", shown(steady["ratio"], 2), f"{steady['p90']:.2f}", "", ""))
    return [
        Grid(
            "first batches under other rules",
            (
                *("what changed", "batches", "times their neighbours", "90 % are below"),
                *("seconds", "of them entering"),
            ),
            tuple(rows),
        )
    ]


BENCHMARK = Benchmark(
    "rewire", "batches under other rules against their neighbours", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))

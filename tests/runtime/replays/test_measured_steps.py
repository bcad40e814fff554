"""Test of correlated data: the runtime's measurements of steps change the next epoch's plan, never
a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from anabranch_contract import codec
from anabranch_contract.plans.plan import Optimizer, Plan
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.queries.joins import JoinQuery, Label, QueryId
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.control import Control
from tests.support.oracles.oracle import Oracle, OracleQuery
from tests.support.plain_service import last_snapshot
from tests.support.scenarios.file import read_scenario
from tests.support.worlds.local_replay import LocalReplay

ROWS, BATCHES = 240, 12
CONDITIONS = ("r.a = s.a", "s.b = t.b", "t.c = u.c")
SQL = "SELECT r.a, u.c FROM R r, S s, T t, U u WHERE " + " AND ".join(CONDITIONS)


def write_correlated(folder: Path) -> Path:
    """Write a scenario: a chain R-S-T-U of equal rates.

    Four values of ``a`` are frequent in R and in S, the others nearly unique; ``b`` and ``c`` are
    uniform. By distinct counts R with S is the most selective join; in truth it is the least.
    """
    rng = Random(7)

    def skewed() -> list[int]:
        return [
            rng.randrange(4) if rng.random() < 0.4 else rng.randrange(100_000) for _ in range(ROWS)
        ]

    def uniform() -> list[int]:
        return [rng.randrange(60) for _ in range(ROWS)]

    tables = {
        "R": {"a": skewed()},
        "S": {"a": skewed(), "b": uniform()},
        "T": {"b": uniform(), "c": uniform()},
        "U": {"c": uniform()},
    }
    streams: dict[str, object] = {}
    document = {
        "streams": streams,
        "queries": {"q": {"sql": SQL}},
        "epochs": {"every": 3},
        "optimizer": "clash",
        "parallelism": 1,
    }
    folder.mkdir()
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    times = pa.array([int((start + i) * 1e6) for i in range(ROWS)], pa.timestamp("us", "UTC"))
    for name, columns in tables.items():
        arrays = {c: pa.array(v, pa.int64()) for c, v in columns.items()}
        pq.write_table(pa.table({**arrays, "ts": times}), folder / f"{name}.parquet")
        streams[name] = {
            "path": f"{name}.parquet",
            "event_time": "ts",
            "rows_per_batch": ROWS // BATCHES,
        }
    path = folder / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@dataclass(slots=True)
class Observer:
    """Plans as the service does, and records the statistics used."""

    blind: bool
    control: Control
    plans: list[Plan] = field(default_factory=list)
    seen: list[Snapshot] = field(default_factory=list)

    def __call__(
        self,
        queries: Sequence[JoinQuery],
        statistics: Statistics,
        optimizer: Optimizer,
        parallelism: int,
        epoch: int,
    ) -> Plan:
        newest = last_snapshot(self.control)
        if newest is not None:
            self.seen.append(newest)
        if self.blind:
            statistics = replace(statistics, samples=(), values={})
        plan = optimise(
            queries, statistics, Options(optimizer=optimizer, parallelism=parallelism, mir=False)
        )
        self.plans.append(plan)
        return plan

    def paths(self, epoch: int) -> dict[Label, tuple[Label, ...]]:
        """Return start -> the labels that its order adds, in order."""
        return {
            o.start: tuple(label for step in o.steps for label in step.members)
            for o in self.plans[epoch].orders
        }


def probes(watcher: Observer) -> int:
    """Return the number of tuples probed in the epochs after the first, by snapshots."""
    return sum(edge.probes for s in watcher.seen[1:] for edge in s.edges.values())


def replay(path: Path, out: Path, url: str, *, blind: bool) -> Observer:
    watcher = Observer(blind, Control(url, "test"))
    run = LocalReplay(path, out, url, planner=watcher)
    activation = run.run()["q"]
    scenario = read_scenario(path)
    oracle = Oracle(scenario)
    try:
        members = tuple((x.lower(), x) for x in "RSTU")
        query = OracleQuery(members, (("r.a", "a", True), ("u.c", "c", True)), CONDITIONS)
        found = oracle.compare(query, scenario.queries["q"], activation, out / "results" / "q")
        assert not found.problems
        assert found.got == activation.results > 0
    finally:
        oracle.close()
    return watcher


def test_a_plan_gets_better_once_its_steps_have_been_seen(redis: str, tmp_path: Path) -> None:
    path = write_correlated(tmp_path / "scenario")
    blind = replay(path, tmp_path / "blind", redis, blind=True)
    seeing = replay(path, tmp_path / "seeing", redis, blind=False)

    assert seeing.plans[0].queries == (QueryId("q"),)
    assert seeing.paths(0) == blind.paths(0)
    assert blind.paths(3)[Label("S")] == ("R", "T", "U")
    assert seeing.paths(3)[Label("S")] == ("T", "U", "R")
    assert probes(seeing) < probes(blind)
    # Samples of steps are kept longer than the plan with these steps.
    steps = [{(s.head, s.target) for s in known.steps} for known in seeing.seen]
    assert steps[0] <= steps[1] <= steps[2]


@pytest.mark.e2e
def test_samples_survive_the_way_to_the_planner(redis: str, tmp_path: Path) -> None:
    path = write_correlated(tmp_path / "scenario")
    watcher = replay(path, tmp_path / "out", redis, blind=True)
    last = watcher.seen[-1]
    assert codec.loads(codec.dumps(last), Snapshot) == last
    assert last.steps
    assert all(s.hits <= s.pairs for s in last.steps)
    assert last.spans["R"] == (ROWS * 3 // 4 - 1) * 1_000_000  # three epochs of four

"""Fault grid: every component of a pipeline is killed at every step of the batch protocol.

``python -m tests.support.scenarios.fault_grid`` runs one replay per component, with one SIGKILL per
step, and prints a table; ``--json`` prints one line per cell, ``--read`` reads such lines instead
of running replays, ``--write`` writes the table into ``docs/recovery.md``. In each cell the runtime
is stopped at a step (``anabranch_runtime.faults``), a real process is killed, all others continue,
and the killed process is restarted as by a supervisor. At the end of a replay every result is
compared with DuckDB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import redis
import yaml

from anabranch_client.processes.children import session
from anabranch_client.processes.pipeline import Pipeline, running, spawn_runtime
from anabranch_client.replay.player import ScenarioObserver
from anabranch_client.replay.replay import run_to_report
from anabranch_client.replay.scenario import load_scenario
from anabranch_client.rest.api import Client
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Heartbeat, Progress
from anabranch_runtime.faults import Point
from anabranch_runtime.state.manifest import Manifests
from tests.support.oracles.ledger import made_good, read_rations
from tests.support.oracles.oracle import Withheld
from tests.support.scenarios import changed_streams
from tests.support.surroundings.fault_points import OF_ALL
from tests.support.surroundings.redis import StoppableRedis
from tests.support.worlds.processes import kill, spec_of, wait_until
from tests.support.worlds.replay_check import Verdict, check

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "recovery.md"
BEGIN, END = "<!-- fault grid: begin -->", "<!-- fault grid: end -->"
#: Steps of the grid. Elsewhere, ``tests/runtime/replays/test_store_kills.py`` kills at the steps
#: with an object store, ``tests/e2e/test_view_kills.py`` at the steps of views,
#: ``tests/e2e/test_sinks.py`` at the steps of groups, ``tests/e2e/test_kafka.py`` at that of Kafka
#: sinks.
STEPS = tuple(p for p in Point if p in OF_ALL)
#: Number of batches of a long replay.
LONG = 100
#: Seconds for which a killed service or Redis stays away, and time limit of a cell.
AWAY, PATIENCE = 0.5, 900.0


class Component(StrEnum):
    """Component that is killed: ``DRIVER`` is the runtime's Python process, ``JVM`` Spark's."""

    DRIVER = "driver"
    JVM = "jvm"
    WORKER = "worker"
    SERVICE = "service"
    REDIS = "redis"


@dataclass
class Cell:
    """A cell of the grid, i.e. one kill.

    Attributes:
        pid: id of the killed process. ``restarts``: number of restarts of the runtime that the kill
            made necessary.
        seconds: time from the kill to the next committed batch.
    """

    component: Component
    point: Point
    pid: int = 0
    restarts: int = 0
    seconds: float = 0.0
    exact: bool = False


@dataclass
class Striker:
    """Executes the cells of one replay, one after the other; called by the player's polling."""

    folder: Path
    cells: Sequence[Cell]
    redis: StoppableRedis
    done: list[Cell] = field(default_factory=list)
    rationed: bool = False
    standby: bool = False
    #: Number of restarts after the runtime ended by itself (on a machine that is too busy).
    unprovoked: int = 0
    #: Number of times that a standby took over.
    taken_over: int = 0
    _next_run: str = ""
    _ready: bool = False
    _struck: float | None = None
    _base: int = 0
    #: Number of cells for which the policy has been set.
    _set: int = -1

    def turn(self, pipeline: Pipeline) -> bool:
        """Take the next action; return whether all processes should be running."""
        if len(self.done) == len(self.cells):
            self._end_standby(pipeline)
            return True
        cell = self.cells[len(self.done)]
        if self._struck is not None:
            return self._recover(pipeline, cell, self._struck)
        if any(c.name == "runtime" for c in pipeline.children) and self._supervise(pipeline):
            self.unprovoked += 1
            return False
        progress = pipeline.channel.progress()
        if progress is not None and progress.state == "failed":
            return False
        if progress is None or progress.committed == 0:
            return True
        if self.standby and not self._ready and not self._await_standby(pipeline, cell):
            return True
        armed, held = self.folder / cell.point, self.folder / f"{cell.point}.held"
        # A stopped runtime does not report a new policy.
        is_armed = armed.exists() or held.exists()
        if self.rationed and not is_armed and not self._switched(pipeline, progress):
            return True
        if held.exists() and (text := held.read_text()):
            self._base, self._struck = progress.committed, time.monotonic()
            self._strike(pipeline, cell, int(text), held)
            return False
        if not armed.exists() and not held.exists():
            armed.touch()
        return True

    def _switched(self, pipeline: Pipeline, progress: Progress) -> bool:
        """Switch between rations and catch-up for the next cell; return whether it took effect."""
        on = len(self.done) % 2 == 0
        if self._set < len(self.done):
            self._set = len(self.done)
            with Client(pipeline.url, token="") as client:
                policy = "ration-with-catch-up" if on else "wait"
                client.update_settings(overload=policy, capacity=0.3)
        return on == bool(progress.rationing.rations)

    def _supervise(self, pipeline: Pipeline) -> bool:
        """Start the runtime again if it has ended; return whether it had."""
        runtime = next(c for c in pipeline.children if c.name == "runtime")
        code = runtime.process.poll()
        if code is None:
            return False
        assert code != 0, "the runtime left as if nothing had happened"
        pipeline.children.remove(runtime)
        standby = next((c for c in pipeline.children if c.name == "standby"), None)
        if standby is None:
            pipeline.start_runtime()
        else:
            # The standby takes over by itself; only the records here are changed.
            standby.name, pipeline.run = "runtime", self._next_run
            self.taken_over += 1
        return True

    def _await_standby(self, pipeline: Pipeline, cell: Cell) -> bool:
        """Stop the driver before a batch until a standby is ready; then arm the cell's point."""
        armed = self.folder / Point.CHOOSING
        held = self.folder / f"{Point.CHOOSING}.held"
        if not armed.exists() and not held.exists():
            armed.touch()
        self._ready = self._has_standby(pipeline) and held.exists() and held.read_text() != ""
        if self._ready and cell.point is not Point.CHOOSING:
            (self.folder / cell.point).touch()
            held.unlink()
        return self._ready

    def _has_standby(self, pipeline: Pipeline) -> bool:
        """Start a standby if there is none; return whether it is ready."""
        if not any(c.name == "standby" for c in pipeline.children):
            self._next_run = uuid.uuid4().hex
            child = spawn_runtime(pipeline.spec, pipeline.redis_url, self._next_run, "--standby")
            child.name = "standby"
            pipeline.children.append(child)
        with redis.Redis.from_url(pipeline.redis_url, decode_responses=True) as server:
            text = server.get(Keys(pipeline.spec.namespace).standby)
        found = None if text is None else Heartbeat.loads(str(text))
        return found is not None and (found.run, found.state) == (self._next_run, "working")

    def _end_standby(self, pipeline: Pipeline) -> None:
        for child in [c for c in pipeline.children if c.name == "standby"]:
            pipeline.children.remove(child)
            child.kill()

    def _strike(self, pipeline: Pipeline, cell: Cell, holder: int, held: Path) -> None:
        runtime = next(c for c in pipeline.children if c.name == "runtime")
        if cell.component is Component.DRIVER:
            cell.pid = runtime.pid
        elif cell.component is Component.JVM:
            cell.pid = next(p.pid for p in session(runtime.pid) if p.name() == "java")
        elif cell.component is Component.WORKER:
            cell.pid = holder if holder != runtime.pid else worker_of(runtime.pid)
        elif cell.component is Component.SERVICE:
            cell.pid = next(c for c in pipeline.children if c.name == "service").pid
            kill(pipeline, "service")
        else:
            self.redis.kill()
        if cell.component in (Component.DRIVER, Component.JVM, Component.WORKER):
            os.kill(cell.pid, signal.SIGKILL)
        # The stopped process continues without the killed one.
        held.unlink()
        if cell.component in (Component.SERVICE, Component.REDIS):
            time.sleep(AWAY)
        if cell.component is Component.SERVICE:
            pipeline.start_service().close()
        if cell.component is Component.REDIS:
            self.redis.start()
            wait_until("Redis to come back", pipeline.channel.ping)

    def _recover(self, pipeline: Pipeline, cell: Cell, struck: float) -> bool:
        assert time.monotonic() - struck < PATIENCE, f"{cell} has not recovered"
        if self._supervise(pipeline):
            cell.restarts += 1
            assert cell.restarts < 4, f"{cell}: the runtime can't start again"
            return False
        if cell.component in (Component.DRIVER, Component.JVM) and not cell.restarts:
            # Without Spark, a batch may still be committed, but then the runtime ends.
            return False
        progress = pipeline.channel.progress()
        if progress is None or progress.committed <= self._base or progress.state == "failed":
            return False
        cell.seconds = time.monotonic() - struck
        self.done.append(cell)
        self._struck, self._ready = None, False
        return True


def worker_of(runtime: int) -> int:
    """Return a Python worker of the runtime: a fork of Spark's daemon."""
    daemons: dict[int, int] = {}
    for process in session(runtime):
        # Other processes start and end meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            if "anabranch_runtime.spark.daemon" in process.cmdline():
                daemons[process.pid] = process.ppid()
    return next(pid for pid, parent in daemons.items() if parent in daemons)


@dataclass(slots=True)
class StruckPipeline(Pipeline):
    """A pipeline whose processes are killed when its health is checked."""

    striker: Striker | None = None

    def check(self) -> None:
        """Check the pipeline if all of its processes should be running."""
        if self.striker is None or self.striker.turn(self):
            Pipeline.check(self)


def play_cells(
    cells: Sequence[Cell],
    folder: Path,
    views: Mapping[str, str] | None = None,
    *,
    revise: int | None = None,
    rationed: bool = False,
    standby: bool = False,
    changed: bool = False,
) -> Verdict:
    """Replay a scenario that is long enough for ``cells``, and check its results.

    Args:
        views: further queries by name, whose results are left to the caller to judge.
        revise: number of batches of an epoch before its ruleset is revised; epochs are then longer.
        rationed: whether batches withhold tuples by the service's schedule, or catch up, in turns
            from cell to cell. In a replay the service gets measurements only if it revises.
        standby: whether a standby takes over from a killed runtime.
        changed: whether the streams and queries of :mod:`.changed_streams` are added and checked.
    """
    faults = folder / "faults"
    faults.mkdir(parents=True)
    # Views include batches with some delay.
    each = 20 if views or changed else 12 if rationed else 4
    batches = 8 + each * len(cells)
    path = write_scenario(folder / "scenario", batches, drifting=revise is not None)
    document = yaml.safe_load(path.read_text())
    for name, sql in (views or {}).items():
        document["queries"][name] = {"sql": sql, "window": "15 minutes"}
    if revise is not None:
        document |= {"epochs": {"every": 6}, "revisions": {"every": revise, "gain": 0}}
    played = path.with_name("PLAYED.yaml")
    played.write_text(yaml.safe_dump(document, sort_keys=False))
    whole = played
    if changed:
        changed_streams.add(document, path.parent, batches)
        whole = path.with_name("CHANGED.yaml")
        whole.write_text(yaml.safe_dump(document, sort_keys=False))
        played.write_text(yaml.safe_dump(changed_streams.without(document), sort_keys=False))
    scenario = load_scenario(whole)
    server = StoppableRedis()
    before = os.environ.get("ANABRANCH_FAULTS")
    os.environ["ANABRANCH_FAULTS"] = str(faults)
    try:
        spec = spec_of(
            folder / "out",
            parallelism=scenario.parallelism,
            epoch_batches=scenario.every,
            revise_batches=revise,
            redis_url=server.url,
        )
        with running(spec) as plain:
            striker = Striker(faults, cells, server, rationed=rationed, standby=standby)
            pipeline = StruckPipeline(
                plain.spec, plain.channel, plain.redis_url, plain.children, striker=striker
            )
            run_to_report(scenario, pipeline, ScenarioObserver())
    finally:
        os.environ.pop("ANABRANCH_FAULTS")
        if before is not None:
            os.environ["ANABRANCH_FAULTS"] = before
        server.close()
    assert striker.unprovoked < 5, "the runtime ends by itself"
    restarts = sum(c.restarts for c in cells) + striker.unprovoked
    assert striker.taken_over == (restarts if standby else 0)
    missing = [f"{c.component}@{c.point}" for c in cells[len(striker.done) :]]
    assert not missing, f"the replay was over before {missing}"
    withheld = _withheld(folder / "out") if rationed else ()
    verdict = check(
        played if revise is not None or changed else path, folder / "out", withheld=withheld
    )
    if changed:
        changed_streams.check(whole, folder / "out" / "results")
    for cell in cells:
        cell.exact = not verdict.problems
    return verdict


def _withheld(home: Path) -> tuple[Withheld, ...]:
    """Return the rations in the ledger whose debt was not paid, for queries whose labels are their
    aliases.

    A debt that was partly paid at the end is ``torn``: some of its results may exist.
    """
    results, debt = home / "results", Manifests(home / "state").load().debt
    paid = made_good(results)
    begun = [one for one in debt.batches if one.starts is not None]
    return tuple(
        Withheld(
            run.first,
            run.last,
            str(r.query),
            str(r.start),
            r.share,
            r.ranking,
            torn=any(one.first <= run.first <= one.last for one in begun),
        )
        for run in read_rations(results)
        for r in run.rations
        if (run.first, r.query, r.start) not in paid
    )


def write_scenario(folder: Path, batches: int, *, drifting: bool = False) -> Path:
    """Write a scenario: four streams with few keys, event times and bounds, queries that are added
    and deleted, two optimisers; with intermediate results, expiry, merges and rewires all the time.

    Args:
        drifting: whether the joins with many and those with few matches are exchanged every three
            batches.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    rows = 12 * batches
    # In long replays, batches have some thousand results instead of forty thousand.
    few = 30 if batches < LONG else 60
    start = np.datetime64("2024-03-01T00:00:00", "us")
    columns = {"r": ("a",), "s": ("a", "b"), "t": ("b", "c"), "u": ("c",)}
    streams = {}
    for name, keys in columns.items():
        jitter = rng.integers(-30, 30, rows)
        moments = start + (np.arange(rows) * 5 + jitter).astype("timedelta64[s]")
        many = (np.arange(rows) // 36) % 2 == 0
        keys_of: dict[str, Any] = {"a": np.where(many, 2, 60), "b": 30, "c": np.where(many, 60, 2)}
        table = {k: rng.integers(0, keys_of[k] if drifting else few, rows) for k in keys}
        times = pa.array(moments, pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
        file = folder / f"{name}.parquet"
        pq.write_table(pa.table({**table, "id": np.arange(rows), "ts": times}), file)
        streams[name] = {
            "path": file.name,
            "event_time": "ts",
            "lateness": "1 minute",
            "rows_per_batch": 12,
        }
    chain = "FROM r JOIN s ON r.a = s.a JOIN t ON s.b = t.b JOIN u ON t.c = u.c"
    short = "FROM s JOIN t ON s.b = t.b JOIN u ON t.c = u.c"
    pair = "FROM r JOIN s ON r.a = s.a JOIN t ON s.b = t.b"
    half = batches // 2
    document = {
        "streams": streams,
        "queries": {
            "q0": {"sql": f"SELECT r.id AS r, s.id AS s, t.id AS t, u.id AS u {chain}",
                   "window": "15 minutes"},
            "q1": {"sql": f"SELECT s.id AS s, t.id AS t, u.id AS u {short}",
                   "window": "10 minutes"},
            "q2": {"sql": f"SELECT r.id AS r, t.id AS t {pair}", "window": "20 minutes",
                   "register_at": half // 2, "expire_at": half + half // 2},
            "q3": {"sql": f"SELECT s.id AS s, u.id AS u {short}", "register_at": half,
                   "window": "5 minutes"},
        },
        "epochs": {"every": 2},
        "optimizer": {0: "clash", half: "individual", half + half // 2: "clash"},
        # With the objective in seconds, plans of so few rows have no intermediate results.
        "objective": "tuples",
        "parallelism": 2,
    }  # fmt: skip
    path = folder / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def cells_of(component: Component, points: Iterable[Point] = STEPS) -> list[Cell]:
    """Return the cells of a component, one for each of ``points``."""
    return [Cell(component, point) for point in points]


def table(cells: Sequence[Cell]) -> str:
    """Return the table steps × components: seconds to the next committed batch, and restarts."""
    found = {(c.point, c.component): c for c in cells}
    columns = [x for x in Component if any(c.component is x for c in cells)]
    lines = [
        "| killed at | " + " | ".join(columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for point in [p for p in Point if any(c.point is p for c in cells)]:
        entries = [_entry(found.get((point, column))) for column in columns]
        lines.append(f"| `{point}` | " + " | ".join(entries) + " |")
    return "\n".join(lines)


def _entry(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if not cell.exact:
        return "**wrong**"
    return f"exact, {cell.seconds:.1f} s" + (", restart" if cell.restarts else "")


def main() -> int:
    """Run the grid; returns 0 if the results of every cell were exact."""
    parser = argparse.ArgumentParser(prog="tests.support.scenarios.fault_grid", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON line per cell")
    parser.add_argument("--write", action="store_true", help="put the table into docs/recovery.md")
    parser.add_argument("--components", nargs="*", type=Component, default=list(Component))
    parser.add_argument("--points", nargs="*", type=Point, default=list(STEPS))
    parser.add_argument("--rationed", action="store_true", help="with rations and catch-up")
    parser.add_argument("--standby", action="store_true", help="with a standby of the runtime")
    parser.add_argument("--read", nargs="+", type=Path, help="run nothing: cells of --json runs")
    options = parser.parse_args()
    everything: list[Cell] = []
    for file in options.read or ():
        documents = [json.loads(line) for line in file.read_text().splitlines()]
        everything += [
            Cell(**{**d, "component": Component(d["component"]), "point": Point(d["point"])})
            for d in documents
        ]
    for component in options.components if not options.read else ():
        cells = cells_of(component, options.points)
        # The folder stays if a cell fails.
        folder = Path(tempfile.mkdtemp(prefix=f"fault-grid-{component}-"))
        revise = 1 if options.rationed else None
        verdict = play_cells(
            *(cells, folder / "grid"),
            revise=revise,
            rationed=options.rationed,
            standby=options.standby,
        )
        if not verdict.problems:
            shutil.rmtree(folder)
        everything += cells
        sys.stderr.write(f"{component}: {verdict}\n")
        for cell in cells if options.json else ():
            sys.stdout.write(json.dumps(asdict(cell)) + "\n")
    if not options.json:
        sys.stdout.write(table(everything) + "\n")
    if options.write:
        text = DOCUMENT.read_text()
        head, tail = text.split(BEGIN)[0], text.split(END)[1]
        DOCUMENT.write_text(f"{head}{BEGIN}\n{table(everything)}\n{END}{tail}")
    return 0 if all(c.exact for c in everything) else 1


if __name__ == "__main__":
    sys.exit(main())

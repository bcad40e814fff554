"""Tests of publishing through failing sinks: no result is lost or duplicated, other
sinks continue.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as redis_client

from anabranch_contract.connectors.policy import AccessError
from anabranch_contract.connectors.secrets import without_secrets
from anabranch_contract.connectors.sinks import SinkKind, SinkSpec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks import publisher as publishing
from anabranch_runtime.sinks import redis_stream
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.kafka.courier import Courier
from anabranch_runtime.sinks.publisher import LONGEST_PAUSE, Publisher, pause_after
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.sources.permitted import permitted_sink
from anabranch_runtime.storage.pipeline_lock import identity
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import RS, rules
from tests.support.surroundings.deliveries import entries, sink, staged
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.redis import redis_url

OUTSIDE = sink("notebook")
KEYS = Keys("test")


class Notebook:
    """A sink that fails while ``failing`` is set, and records its batches."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int, int]] = []
        self.failing = False
        self.tries = 0

    def write(self, delivery: Delivery) -> None:
        self.tries += 1
        if self.failing:
            raise OSError(f"page {delivery.batch} is torn\n  at some line")
        self.taken.append((delivery.query, delivery.batch, delivery.read().num_rows))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE", 0.0)


def publisher(folder: Path, notebook: Notebook, next_batch: int = 0) -> Publisher:
    made = Publisher(folder / "results", {SinkKind.TABLE: notebook.write})
    made.begin(next_batch, "pipeline")
    return made


def query(name: str, to: SinkSpec) -> QuerySpec:
    return replace(rules(0, {name: RS}).queries[0], sink=to)


def publish(
    to: Publisher, folder: Path, batch: int, *names: str, spec: SinkSpec = OUTSIDE
) -> dict[str, Any]:
    rows = pa.record_batch({"x": [batch] * (batch + 1)})
    made = []
    for name in names:
        files = staged(folder / "staging", name, spec, batch, rows).files
        made += [(name, 0, file) for file in files]
    return to.publish(batch, [query(name, spec) for name in names], made)


def test_what_a_sink_does_not_take_waits_and_comes_in_order(tmp_path: Path) -> None:
    notebook = Notebook()
    to = publisher(tmp_path, notebook)
    publish(to, tmp_path, 0, "q")
    notebook.failing = True
    for batch in (1, 2):
        located = publish(to, tmp_path, batch, "q")
        assert all(file.exists() for file in located["q"])
    assert to.problems() == {"q": "2 batches wait: OSError: page 1 is torn"}
    # Only the oldest delivery is tried: none may overtake it.
    assert notebook.tries == 3

    notebook.failing = False
    publish(to, tmp_path, 3, "q")
    assert notebook.taken == [("q", 0, 1), ("q", 1, 2), ("q", 2, 3), ("q", 3, 4)]
    assert to.problems() == {}
    assert not list((tmp_path / "results").glob(".outbox/*/*"))


def test_one_sink_that_fails_holds_up_no_other(tmp_path: Path) -> None:
    notebook = Notebook()
    to = publisher(tmp_path, notebook)
    notebook.failing = True
    publish(to, tmp_path, 0, "p", "q")
    publish(to, tmp_path, 1, "own", spec=SinkSpec())
    assert set(to.problems()) == {"p", "q"}
    assert len(list((tmp_path / "results" / "own").glob("*.parquet"))) == 1


def test_what_waits_of_an_earlier_run_comes_first(tmp_path: Path) -> None:
    notebook = Notebook()
    made = publisher(tmp_path, notebook)
    notebook.failing = True
    for batch in range(2):
        publish(made, tmp_path, batch, "q~2")
    publish(made, tmp_path, 2, "q~10")
    publish(made, tmp_path, 2, "qq")
    torn = "OSError: page 0 is torn"
    assert made.problems() == {
        "q~2": f"2 batches wait: {torn}",
        "q~10": f"1 batch waits: results of q~2 come first: {torn}",
        "qq": "1 batch waits: OSError: page 2 is torn",
    }
    notebook.failing = False
    publish(made, tmp_path, 3, "q~10")
    ours = [(name, batch) for name, batch, _ in notebook.taken if name != "qq"]
    assert ours == [("q~2", 0), ("q~2", 1), ("q~10", 2), ("q~10", 3)]
    made.finish()
    assert made.problems() == {}


def test_what_waits_survives_a_restart_but_for_what_is_repeated(tmp_path: Path) -> None:
    notebook = Notebook()
    notebook.failing = True
    first = publisher(tmp_path, notebook)
    for batch in (0, 1, 2):
        publish(first, tmp_path, batch, "q")

    notebook.failing = False
    # Batch 2 did not commit.
    second = publisher(tmp_path, notebook, next_batch=2)
    assert (second.parked(), second.problems()) == ({"q": 2}, {})
    second.retry()
    assert notebook.taken == [("q", 0, 1), ("q", 1, 2)]
    publish(second, tmp_path, 2, "q")
    assert notebook.taken[2:] == [("q", 2, 3)]


def test_a_batch_that_is_published_again_replaces_what_was_parked(tmp_path: Path) -> None:
    notebook = Notebook()
    notebook.failing = True
    to = publisher(tmp_path, notebook)
    for _ in range(2):
        publish(to, tmp_path, 0, "q")
    notebook.failing = False
    to.finish()
    assert notebook.taken == [("q", 0, 1)]


def test_pauses_grow_and_a_sink_is_left_alone_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE", 30.0)
    notebook = Notebook()
    notebook.failing = True
    to = publisher(tmp_path, notebook)
    for batch in range(3):
        publish(to, tmp_path, batch, "q")
    to.retry()
    assert notebook.tries == 1
    with pytest.raises(SinkError) as caught:
        to.finish()
    assert notebook.tries == 2
    assert "3 batches wait" in caught.value.message
    assert to._failures["q"].retry - time.monotonic() > 45


def test_too_much_that_waits_stops_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "MOST_WAITING", 2)
    notebook = Notebook()
    notebook.failing = True
    to = publisher(tmp_path, notebook)
    for batch in (0, 1):
        publish(to, tmp_path, batch, "q")
    with pytest.raises(SinkError) as caught:
        publish(to, tmp_path, 2, "q")
    assert caught.value.code == "sink-blocked"


class SlowNotebook(Notebook):
    """A sink like a topic, which accepts a delivery when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def write(self, delivery: Delivery) -> None:
        assert self.free.wait(60)
        super().write(delivery)


TOPIC = sink("kafka", brokers="host:9092", topic="t")


def topics(folder: Path, notebook: Notebook, next_batch: int = 0) -> Publisher:
    made = Publisher(folder / "results", {SinkKind.KAFKA: Courier(notebook.write)})
    made.begin(next_batch, "pipeline")
    return made


def test_a_topic_gets_a_batch_while_the_next_one_runs(tmp_path: Path) -> None:
    notebook = SlowNotebook()
    to = topics(tmp_path, notebook)
    for query in ("p", "q"):
        located = publish(to, tmp_path, 0, query, spec=TOPIC)
        assert all(file.exists() for file in located[query])
    to.retry()
    # The delivery is neither a problem nor parked.
    assert (to.problems(), to.parked(), notebook.taken) == ({}, {}, [])
    assert len(to.undelivered("q")) == 1
    later = threading.Thread(target=publish, args=(to, tmp_path, 1, "q"), kwargs={"spec": TOPIC})
    later.start()
    # The next delivery waits for it.
    later.join(0.1)
    assert later.is_alive()
    notebook.free.set()
    later.join(60)
    to.finish()
    assert notebook.taken == [("p", 0, 1), ("q", 0, 1), ("q", 1, 2)]
    assert not to.undelivered("q")


def test_a_topic_that_fails_holds_up_no_batch(tmp_path: Path) -> None:
    notebook = SlowNotebook()
    notebook.failing = True
    to = topics(tmp_path, notebook)
    notebook.free.set()
    publish(to, tmp_path, 0, "q", spec=TOPIC)
    while not to.problems():
        to.retry()
    notebook.free.clear()
    # An attempt is running, and no batch waits for its end.
    for batch in (1, 2, 3):
        publish(to, tmp_path, batch, "q", spec=TOPIC)
    assert to.parked() == {"q": 4}
    assert to.problems()["q"].startswith("4 batches wait: OSError: page 0 is torn")
    notebook.failing = False
    notebook.free.set()
    to.finish()
    assert [batch for _, batch, _ in notebook.taken] == [0, 1, 2, 3]
    assert (to.problems(), to.parked()) == ({}, {})


def test_a_batch_for_a_topic_that_is_published_again_is_sent_whole(tmp_path: Path) -> None:
    notebook = SlowNotebook()
    to = topics(tmp_path, notebook)
    publish(to, tmp_path, 0, "q", spec=TOPIC)
    notebook.free.set()
    publish(to, tmp_path, 0, "q", spec=TOPIC)
    to.finish()
    # The sink itself knows the batch.
    assert notebook.taken == [("q", 0, 1)] * 2
    # A delivery of a batch that did not commit is forgotten, others are sent.
    notebook.free.clear()
    for batch in (1, 2):
        publish(topics(tmp_path, notebook, batch), tmp_path, batch, "q", spec=TOPIC)
    notebook.taken.clear()
    again = topics(tmp_path, Notebook(), 2)
    assert [batch for batch, _ in again.undelivered("q")] == [1]
    again.finish()
    assert not again.undelivered("q")
    notebook.free.set()


def test_a_format_that_nobody_writes_waits(tmp_path: Path) -> None:
    to = Publisher(tmp_path / "results")
    to.begin(0, "pipeline")
    publish(to, tmp_path, 0, "q")
    assert "no writer for sinks of format notebook" in to.problems()["q"]


def test_secrets_stay_in_the_environment() -> None:
    url = "jdbc:postgresql://me:${ANABRANCH_SINK_PW}@db/d"
    to = sink("jdbc", url=url, user="${ANABRANCH_SINK_USER}", dbtable="t")
    environ = {"ANABRANCH_SINK_USER": "me", "ANABRANCH_SINK_PW": "s3/${cret}"}
    assert dict(permitted_sink(to, OPEN, "test", environ).options) == {
        "url": "jdbc:postgresql://me:s3/${cret}@db/d",
        "user": "me",
        "dbtable": "t",
    }
    for shown in ("s3/${cret}", "s3%2F%24%7Bcret%7D"):
        assert without_secrets(f"no login with {shown}", environ) == "no login with ***"
    with pytest.raises(AccessError) as caught:
        permitted_sink(to, OPEN, "test", {"ANABRANCH_SINK_USER": "me"})
    assert caught.value.field == "ANABRANCH_SINK_PW"


def test_a_sink_may_fail_for_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE", 0.5)
    assert pause_after(5000) == LONGEST_PAUSE


def test_an_identity_is_made_once(tmp_path: Path) -> None:
    made = identity(tmp_path / "state")
    assert identity(tmp_path / "state") == made != identity(tmp_path / "other")


# --- the whole protocol, with the real driver and a real server -----------------------------------


class Killed(BaseException):
    """The simulated death of the process, which nothing may catch."""


def plan(url: str, to: SinkSpec) -> None:
    made = rules(0, {"q": RS, "plain": RS})
    queries = tuple(replace(q, sink=to) if q.id == "q" else q for q in made.queries)
    document = rulesets.dumps(replace(made, queries=queries))
    connection = redis_client.Redis.from_url(url)
    connection.set(KEYS.ruleset(0), document)
    connection.zadd(KEYS.published, {"0": 0})


def start(url: str, folder: Path) -> Driver:
    settings = DriverSettings(
        folder / "state",
        folder / "results",
        epoch_batches=100,
        mode=Mode.STEP,
        patience=0.05,
        access=OPEN,
    )
    settings.state.mkdir(parents=True, exist_ok=True)
    made = Driver(settings, Control(url, "test"))
    made.announce()
    return made


def job(context: BatchContext) -> list[TaskReport]:
    """Return the input of batch ``b``: one tuple of R and five of S."""
    one = pa.array([0], pa.int64())
    values = pa.array([10 * context.batch + n for n in range(5)], pa.int64())
    moment = pa.array([context.batch], pa.timestamp("us", tz="UTC"))
    blocks = [
        Block("R", pa.record_batch({"a": one, "ts": moment})),
        Block(
            "S", pa.record_batch({"a": pa.array([0] * 5), "b": values, "ts": moment.take([0] * 5)})
        ),
    ]
    known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
    return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]


def appended(url: str) -> list[int]:
    found = entries(redis_client.Redis.from_url(url), "out")
    return sorted(json.loads(fields[b"data"])["b"] for _, fields in found)


def expected(batches: int) -> list[int]:
    """Return the expected results: every R joins every S."""
    return sorted(10 * b + n for b in range(batches) for n in range(5) for _ in range(batches))


def cut_short(
    entries: Iterator[bytes], chunks: Callable[..., Any] = redis_stream._chunks
) -> Iterator[list[bytes]]:
    """Return the first chunk of a batch, then raise :class:`Killed`."""
    yield next(chunks(entries))
    raise Killed


@pytest.mark.parametrize("phase", ["in the sink", "between the sinks", "before the commit"])
def test_a_driver_that_dies_while_it_publishes_doubles_nothing(
    phase: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(url, sink("redis-stream", stream="out"))
    for batch in range(2):
        made = start(url, tmp_path)

        def die(*_: object, **__: object) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            if phase == "in the sink":
                patch.setattr(redis_stream, "ENTRIES", 2)
                patch.setattr(redis_stream, "_chunks", cut_short)
            elif phase == "between the sinks":
                made.publisher.writers[SinkKind.REDIS] = die
            else:
                made.durability.manifests.commit = die  # type: ignore[method-assign]
            with pytest.raises(Killed):
                made.run(job)
        again = start(url, tmp_path)
        again.run(job)
        assert appended(url) == expected(batch + 1)
    files = list((tmp_path / "results" / "plain").glob("*.parquet"))
    assert len(files) == 2


def test_a_server_that_takes_nothing_delays_its_results_only(url: str, tmp_path: Path) -> None:
    with redis_url() as other:
        server = redis_client.Redis.from_url(other)
        plan(url, sink("redis-stream", stream="out", url=other))
        made = start(url, tmp_path)
        made.run(job)
        server.config_set("maxmemory", 1)
        for _ in range(2):
            made.run(job)
        progress = Progress.loads(redis_client.Redis.from_url(url).get(KEYS.runtime) or b"")
        assert progress.committed == 3
        assert progress.sinks["q"].startswith("2 batches wait: OutOfMemoryError")

        server.config_set("maxmemory", 0)
        made.tick()
        assert appended(other) == expected(3)
        progress = Progress.loads(redis_client.Redis.from_url(url).get(KEYS.runtime) or b"")
        assert progress.sinks == {}
        made.finish()


def test_committed_results_reach_those_who_listen(url: str, tmp_path: Path) -> None:
    plan(url, sink("redis-stream", stream="out"))
    made = start(url, tmp_path)
    made.run(job)
    connection = redis_client.Redis.from_url(url)
    connection.zadd(KEYS.listeners, {"q": time.time() + 100, "plain": time.time() + 100, "x": 1})
    made.tick()
    made.run(job)
    for name in ("q", "plain"):
        found = entries(connection, KEYS.tail(name))
        rows = [line for _, f in found for line in f.get(b"rows", b"").split(b"\n") if line]
        # Rows written to another sink before the first listener are not read again.
        assert len(rows) == (20 if name == "plain" else 15)
    made.finish()

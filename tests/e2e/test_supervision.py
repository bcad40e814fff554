"""Tests of ``anabranch up`` when a process dies, hangs or a disk is full: it recovers, or says why
not.

Everything is done as a person does it, by the command line and signals; nothing is mended by hand.
"""

from __future__ import annotations

import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.surroundings.disks import small_disk
from tests.support.surroundings.redis import StoppableRedis
from tests.support.worlds.processes import wait_until
from tests.support.worlds.up import JOIN, Target, Up, upped

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_whoever_dies_comes_back(tmp_path: Path) -> None:
    with upped(tmp_path) as up:
        up.register()
        with up.fed():
            up.wait_for_commits(3)
            for target in [t for t in Target if t is not Target.STANDBY]:
                up.kill(target)
                up.wait_for_commits(3)
        assert up.process is not None
        assert up.process.poll() is None
        assert up.stop() == 0
    said = up.text()
    assert "the runtime ended: it was killed (signal 9) [killed]" in said
    assert "[spark-lost]; it is started again at once" in said
    assert "the service ended: it was killed" in said
    assert "Redis ended: it was killed" in said


def test_up_again_after_a_failure(tmp_path: Path) -> None:
    """The progress in Redis of a failed run must not count for the next one."""
    with upped(tmp_path) as up:
        up.register()
        with up.fed():
            up.wait_for_commits(2)
            up.kill(Target.JVM)
            wait_until(
                "the runtime to say that it failed",
                lambda: "[spark-lost]" in up.text(),
            )
            assert up.process is not None
            up.process.kill()
            up.process.wait()
        up.ready()
        with up.fed():
            up.wait_for_commits(2)
        assert up.stop() == 0


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with small_disk(home, "300m"), upped(tmp_path) as up:
        up.register()
        with up.fed():
            up.wait_for_commits(3)
            filler = home / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 12))
            up.wait("[disk-full]; it is restarted until the cause is gone")
            time.sleep(20)
            assert up.process is not None
            assert up.process.poll() is None
            assert up.text().count("[disk-full]") <= 3, "once for each that is concerned"
            filler.unlink()
            up.wait("the runtime works again after")
            up.wait_for_commits(3)
        assert up.stop() == 0


def test_a_redis_that_has_lost_everything_is_named_each_time(tmp_path: Path) -> None:
    server = StoppableRedis()
    environment = {"ANABRANCH_REDIS_URL": server.url}
    try:
        with upped(tmp_path, environment=environment) as up:
            up.register()
            with up.fed():
                up.wait_for_commits(2)
            with up.redis() as connection:
                connection.flushall()
            assert up.ended() == 1
            assert "[redis-lost]; everything is stopped" in up.text()
            assert "(restore Redis from its append-only file or a backup" in up.text()
            up.start()
            assert up.ended() == 1
            assert "[redis-lost]" in up.text()
            # The remedy: start with an empty state.
            shutil.rmtree(up.home / "state")
            with up.redis() as connection:
                connection.flushall()
            up.ready()
            up.register()
            with up.fed():
                up.wait_for_commits(2)
            assert up.stop() == 0
    finally:
        server.close()


def test_a_given_redis_that_is_away_is_waited_for(tmp_path: Path) -> None:
    server = StoppableRedis()
    try:
        with upped(tmp_path, environment={"ANABRANCH_REDIS_URL": server.url}) as up:
            up.register()
            with up.fed():
                up.wait_for_commits(2)
                server.kill()
                up.wait("the runtime ended: ")
                time.sleep(5)
                server.start()
                up.wait_for_commits(2)
            assert up.stop() == 0
    finally:
        server.close()


def test_a_pause_is_forgiven_and_a_jvm_that_hangs_is_not(tmp_path: Path) -> None:
    with upped(tmp_path) as up:
        up.register()
        with up.fed():
            up.wait_for_commits(2)
            for target in (Target.DRIVER, Target.JVM, Target.SERVICE, Target.REDIS):
                up.kill(target, signal.SIGSTOP)
                time.sleep(5)
                up.kill(target, signal.SIGCONT)
                up.wait_for_commits(2)
            assert "ended" not in up.text()
            up.kill(Target.JVM, signal.SIGSTOP)
            up.wait("the runtime ended: it has given no sign of life for")
            up.wait_for_commits(2)
            up.kill(Target.SERVICE, signal.SIGSTOP)
            up.wait("the service ended: it has given no sign of life for")
            up.wait("the service works again")
            up.kill(Target.REDIS, signal.SIGSTOP)
            up.wait("Redis ended: it has given no sign of life for")
            up.wait("Redis works again")
            up.wait_for_commits(2)
        assert up.stop() == 0


def test_workers_that_hang_cost_an_attempt(tmp_path: Path) -> None:
    with upped(tmp_path, environment={"ANABRANCH_STUCK_AFTER": "5"}) as up:
        up.register()
        with up.fed():
            up.wait_for_commits(2)
            log = up.home / "logs" / "runtime.log"
            up.kill(Target.WORKER, signal.SIGSTOP)
            wait_until("a batch to be cancelled", lambda: "batch cancelled" in log.read_text())
            up.wait_for_commits(2)
            assert "ended" not in up.text()
            # The process that starts and ends workers is killed as well: Spark replaces it, or the
            # runtime is restarted.
            for worker in up.find(Target.WORKER)[:1]:
                daemon = worker.parent()
                assert daemon is not None
                daemon.suspend()
            up.kill(Target.WORKER, signal.SIGSTOP)
            up.wait_for_commits(4)
        assert up.text().count("ended") == up.text().count("[batch-stuck]; it is started again")
        assert up.stop() == 0


def test_a_source_that_fails_is_named_and_can_be_mended(tmp_path: Path) -> None:
    with upped(tmp_path) as up:
        with up.client() as client:
            for stream in "ab":
                client.create_stream(
                    stream,
                    (("id", "bigint"), ("k", "bigint")),
                    source={"format": "parquet", "path": str(up.home / "not there" / stream)},
                )
            client.create_query(JOIN, name="q")
        time.sleep(15)
        up.stop()
        up.ready()
        up.stop()
        with upped(tmp_path):
            pass


def test_the_same_port_as_somebody_else(tmp_path: Path) -> None:
    with upped(tmp_path / "first") as first, first.client() as client:
        port = client.base_url.rpartition(":")[2]
        second = Up(tmp_path / "home", tmp_path / "out", arguments=("--port", port))
        second.start()
        assert second.ended(60) == 1
        assert "the service ended: exit code" in second.text()
        assert "ddress already in use" in second.text()

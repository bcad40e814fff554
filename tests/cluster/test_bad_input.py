"""Tests that a cluster's errors name host, cause and remedy, and that no rows are lost."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scenarios.draw import Generated, generate
from tests.support.worlds.hosted_replay import HostedReplay, begin
from tests.support.worlds.hosted_up import Feeder, await_all, differences, ready
from tests.support.worlds.hosts import CACHE, Cluster, cluster
from tests.support.worlds.processes import wait_until
from tests.support.worlds.replay_check import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return generate(1001, tmp_path_factory.mktemp("scenario") / "made")


@pytest.fixture
def bare(namespaces: None, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without workers."""
    with cluster(tmp_path / "cluster", 0) as found:
        yield found


def _ended(replay: HostedReplay) -> str:
    """Return output and log of a replay that must fail."""
    try:
        assert replay.process.wait(400) == 1, replay.text[-2000:]
        return replay.text + replay.log
    finally:
        replay.close()


def _copied(made: Generated, folder: Path) -> Path:
    folder.mkdir()
    for path in made.folder.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    return folder / made.path.name


@pytest.mark.parametrize("covered", [str(ROOT / "runtime"), str(ROOT / "contract")])
def test_executors_without_the_package(
    covered: str, bare: Cluster, made: Generated, tmp_path: Path
) -> None:
    # An editable install would import another source tree than the tested one.
    bare.add_worker(1, {"PYTHONPATH": str(ROOT), "PYTHONNOUSERSITE": "1"}, covered)
    host = next(iter(bare.workers.values()))
    for package in _installed():
        host.run("mount", "-t", "tmpfs", "nothing", package)
    said = _ended(begin(bare, _copied(made, tmp_path / "run")))
    assert "the Python of an executor has no anabranch_" in said
    assert "install the driver's release" in said


def _installed() -> list[str]:
    """Return the folder in which this interpreter finds the runtime by itself."""
    files = importlib.metadata.files("anabranch") or []
    paths = [str(file.locate()) for file in files if file.suffix == ".pth"]
    lines = [line for path in paths for line in Path(path).read_text().splitlines()]
    return [line for line in lines if Path(line).is_dir()]


def test_wrong_credentials_on_an_executor_only(
    bare: Cluster, made: Generated, tmp_path: Path
) -> None:
    right = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    bare.add_worker(1, right)
    bare.add_worker(1, {**right, "AWS_ACCESS_KEY_ID": "stranger"})
    bare.await_workers(2)
    bare.behave(only="key")
    store = bare.store("wrong-credentials", "")
    said = _ended(begin(bare, _copied(made, tmp_path / "run"), store=store, variables=right))
    stranger = bare.workers["worker2"].address
    assert f"on {stranger}: " in said
    assert "can't be" in said
    assert "the credentials and rights of this process" in said
    assert "secret" not in said


def test_a_cache_directory_that_cannot_be_written(
    world: Cluster, made: Generated, tmp_path: Path
) -> None:
    replay = begin(world, _copied(made, tmp_path / "run"), "--cache-directory", "/proc/nowhere")
    said = _ended(replay)
    assert "/proc/nowhere can't be used as an executor's cache" in said
    assert "--cache-directory" in said


def test_a_store_that_is_a_directory_of_the_driver(
    world: Cluster, made: Generated, tmp_path: Path
) -> None:
    store = (tmp_path / "store").as_uri()
    said = _ended(begin(world, _copied(made, tmp_path / "run"), store=store))
    assert "is not in the object store" in said
    assert "only if all hosts share it" in said


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("hdfs://name/path", ("object_store", "s3://")),
        ("s3://nobody/x?region=us-east-1&scheme=http&endpoint_override={}", ("nobody",)),
        ("nonsense", ("object_store", "s3://")),
    ],
)
def test_an_address_that_is_no_store(
    store: str, words: tuple[str, ...], world: Cluster, made: Generated, tmp_path: Path
) -> None:
    where = store.format(f"{world.network.hosts['store'].address}:9000")
    said = _ended(begin(world, _copied(made, tmp_path / "run"), store=where))
    assert all(word in said for word in words), said[-2000:]


def test_a_host_without_room_is_waited_for(bare: Cluster, tmp_path: Path) -> None:
    for _ in range(2):
        bare.add_worker()
    up = ready(bare, tmp_path / "up", "--cache-directory", CACHE)
    try:
        with Feeder(bare.redis_url, 1, 0.2) as feeder:
            base = up.committed()
            wait_until("some commits", lambda: up.committed() > base + 2)
            host = bare.workers["worker1"]
            # Fill the disk, which ends with an error of dd.
            host.run("sh", "-c", "dd if=/dev/zero of=/tmp/large bs=1M 2>/dev/null || true")
            up.wait("there is no space left for /tmp/anabranch-cache", 200)
            assert f"on {host.address}: " in up.text()
            host.run("rm", "/tmp/large")
            base = up.committed()
            wait_until("a commit", lambda: up.committed() > base)
        await_all(up, feeder.ledger)
        up.stop()
        assert not differences(up, feeder.ledger)
    finally:
        bare.end_commands()

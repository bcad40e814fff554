"""Tests of state in S3, over HTTP."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.durable import Mirrored, attach, durable
from anabranch_runtime.storage.lease import StoreLease
from anabranch_runtime.storage.object_store import Remote, open_remote
from anabranch_runtime.storage.segment_cache import close_all
from tests.support.surroundings.disks import small_disk
from tests.support.surroundings.s3 import s3_server, uri
from tests.support.worlds.driven import expected, publish, results
from tests.support.worlds.random_cuts import RandomCuts, failing

pytest.importorskip("moto", reason="the extra dev has it")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def remote(server: str, request: pytest.FixtureRequest) -> Remote:
    return open_remote(uri(server, f"a/{request.node.name}"))


def test_objects_are_put_read_listed_and_deleted(remote: Remote, tmp_path: Path) -> None:
    large = tmp_path / "large"
    # Larger than one part of an upload.
    large.write_bytes(bytes(range(256)) * (1 << 16))
    remote.put("manifest/1.json", b"one")
    remote.put("manifest/1.json", b"other")
    remote.put("segments/x.pack", large)
    assert remote.names() == {"manifest/1.json": 5, "segments/x.pack": 1 << 24}
    assert remote.get("manifest/1.json") == b"other"
    assert remote.part("segments/x.pack", (1 << 24) - 4, 10) == bytes([252, 253, 254, 255])
    remote.download("segments/x.pack", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == large.read_bytes()
    for name in ("manifest/1.json", "manifest/1.json", "segments/x.pack"):
        remote.delete(name)
    assert remote.names() == {}
    assert remote.get("manifest/1.json") is None
    with pytest.raises(FileNotFoundError):
        remote.download("segments/x.pack", tmp_path / "copy")


def test_what_a_failed_attempt_has_left_goes_while_the_pipeline_runs(
    server: str, url: str, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch_runtime.recovery.durability.TIDY", 0.0)
    publish(url, 0)
    log = RandomCuts(url, tmp_path, settings={"object_store": remote.uri})
    failed = failing(log, monkeypatch)
    one = log.start()
    kept = durable(tmp_path / "state")
    assert isinstance(kept, Mirrored)
    while log.step(one):
        kept._settle()
        assert kept._tidying is not None
        kept._tidying.result()
    there = {name for name in remote.names() if name.startswith("segments/")}
    assert len(failed) == 1
    assert one.durability.manifests.named <= there
    assert not [name for name in there if failed[0] in name]
    assert results(tmp_path) == expected(log.total)


def test_recordings_that_are_read_no_more_go(remote: Remote, tmp_path: Path) -> None:
    kept = attach(tmp_path / "state", remote.uri)
    names = [f"recordings/{name}.arrow" for name in ("A-1", "A-2", "B-1")]
    (tmp_path / "state/recordings").mkdir(parents=True)
    for name in names:
        (tmp_path / "state" / name).write_text(name)
        kept.offer(name)
    remote.put("segments/x.pack", b"x")
    kept.withdraw("recordings/", set(names[1:]))
    assert remote.names().keys() == {*names[1:], "segments/x.pack"}
    kept.withdraw("recordings/", ())
    assert remote.names().keys() == {"segments/x.pack"}
    # The deleted object is written again as if it were new.
    kept.offer(names[0])
    assert remote.names().keys() == {names[0], "segments/x.pack"}


def test_a_bucket_that_is_not_there_is_refused(server: str) -> None:
    missing = open_remote(uri(server, "x", "nobody"))
    with pytest.raises(StateError) as caught:
        missing.put("manifest/1.json", b"one")
    assert caught.value.code == "store-refused"
    assert "nobody/x/manifest/1.json" in caught.value.message
    assert "secret" not in str(caught.value)


def test_a_full_disk_here_is_not_the_stores_fault(remote: Remote, tmp_path: Path) -> None:
    remote.put("segments/x.pack", bytes(4 << 20))
    with small_disk(tmp_path / "small", "1m") as small:
        with pytest.raises(OSError, match="No space left") as caught:
            remote.download("segments/x.pack", small / "x")
        assert caught.value.errno == errno.ENOSPC
        assert not isinstance(caught.value, StateError)


def test_refused_credentials_are_told_of(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    with s3_server(closed=True) as address:
        log = RandomCuts(url, tmp_path, settings={"object_store": uri(address, "x")})
        with pytest.raises(StateError) as caught:
            log.start()
    assert caught.value.code == "store-refused"
    assert "secret" not in str(caught.value)


def test_a_lease_is_held(remote: Remote, tmp_path: Path) -> None:
    with StoreLease(remote, tmp_path / "a").held():
        with pytest.raises(StateError) as caught, StoreLease(remote, tmp_path / "b").held():
            pass
        assert caught.value.code == "store-in-use"
    with StoreLease(remote, tmp_path / "b").held():
        pass


def test_machines_come_and_go(url: str, tmp_path: Path, remote: Remote) -> None:
    publish(url, 0)
    log = RandomCuts(url, tmp_path, settings={"object_store": remote.uri, "cache_size": 4096})
    log.total = 16
    one, done = log.start(), 0
    while log.step(one):
        if one.state.next_batch > done:
            done = one.state.next_batch
            close_all()
            shutil.rmtree(tmp_path / "state")
            one = log.start()
    assert results(tmp_path) == expected(log.total)

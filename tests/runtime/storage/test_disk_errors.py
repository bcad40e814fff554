"""Tests of full and read-only disks: the error names the disk, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.storage.disk_errors import diagnosed
from anabranch_runtime.storage.pipeline_lock import exclusive
from tests.support.surroundings.disks import mount, small_disk
from tests.support.worlds.driven import driver, expected, job, publish, results


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A pipeline's folder whose ``state`` is on a separate file system of 96 KiB."""
    with small_disk(tmp_path / "state", "96k"):
        yield tmp_path


def run_until_it_fails(url: str, home: Path, first: int) -> tuple[int, Exception]:
    """Run batches until one can't be committed; return its number and the error."""
    one = driver(url, home, every=100)
    for batch in range(first, first + 200):
        try:
            one.run(job(batch))
        except OSError as error:
            assert one.state.next_batch == batch
            return batch, error
    raise AssertionError("there was room enough")


def test_a_full_disk_is_named_and_loses_nothing(url: str, small: Path) -> None:
    publish(url, 0)
    stopped, error = run_until_it_fails(url, small, 0)
    assert stopped > 0

    found = diagnosed(error, (small / "state", small / "results"))
    assert isinstance(found, StateError)
    assert found.code == "disk-full"
    assert str(small / "state") in found.message
    assert "make room" in found.remedy
    assert not list((small / "state").rglob("*.partial"))

    assert mount(small / "state", "remount,size=64m")
    one = driver(url, small, every=100)
    for batch in range(stopped, stopped + 20):
        one.run(job(batch))
    assert results(small) == expected(stopped + 20)


def test_a_read_only_disk_is_named_and_loses_nothing(url: str, small: Path) -> None:
    publish(url, 0)
    assert mount(small / "state", "remount,size=64m")
    one = driver(url, small, every=100)
    one.run(job(0))
    assert mount(small / "state", "remount,ro")

    folders = (small / "results", small / "state")
    with pytest.raises(OSError, match="Read-only") as caught:
        one.run(job(1))
    found = diagnosed(caught.value, folders)
    assert isinstance(found, StateError)
    assert found.code == "not-writable"
    assert str(small / "state") in found.message
    with pytest.raises(OSError, match="Read-only") as again, exclusive(small / "state"):
        pass
    assert str(diagnosed(again.value, folders)) == str(found)

    assert mount(small / "state", "remount,rw")
    one = driver(url, small, every=100)
    for batch in range(1, 5):
        one.run(job(batch))
    assert results(small) == expected(5)


def test_what_tasks_and_the_jvm_quote_is_understood(tmp_path: Path) -> None:
    quoted = PipelineError(
        "query-failed", "the query has ended: [Errno 28] No space left on device"
    )
    found = diagnosed(quoted, (tmp_path / "not" / "there",))
    assert isinstance(found, StateError)
    assert found.code == "disk-full"
    assert isinstance(
        diagnosed(RuntimeError("java: No space left on device"), (tmp_path,)), StateError
    )


@pytest.mark.parametrize(
    "error",
    [
        StateError("state-in-use", "No space left on device"),
        PipelineError("no-ruleset", "No space left on device"),
        PipelineError("query-failed", "a source: Permission denied"),
        OSError("something else"),
        ValueError("no"),
    ],
)
def test_what_is_not_the_disks_fault_stays_as_it_is(error: Exception, tmp_path: Path) -> None:
    assert diagnosed(error, (tmp_path,)) is error

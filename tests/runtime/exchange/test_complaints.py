"""Tests that errors of tasks reach the driver as errors, with their hosts' names."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.exchange.complaints import (
    complaint,
    first_cause,
    other_version,
    own_version,
)

CACHE = Path("/cache")


def test_an_error_keeps_its_kind_and_gets_its_host() -> None:
    said = complaint(StateError("damaged-pack", "it is", field="x", remedy="do"), "h1", CACHE)
    assert said is not None
    found = first_cause([said])
    assert type(found) is StateError
    assert (found.code, found.message) == ("damaged-pack", "on h1: it is")
    assert (found.field, found.remedy) == ("x", "do")


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "disk-full"), (errno.EROFS, "no-cache-directory")]
)
def test_a_disk_of_a_host_is_named(number: int, code: str) -> None:
    said = complaint(OSError(number, "bad"), "h1", CACHE)
    assert said is not None
    assert said["code"] == code
    assert "on h1" in said["message"]
    assert "/cache" in said["message"]
    assert "--cache-directory" in said["remedy"]


def test_of_other_errors_nothing_is_known() -> None:
    assert complaint(ValueError("x"), "h1", CACHE) is None
    assert first_cause([]) is None


def test_what_follows_from_another_error_counts_less() -> None:
    errors = [
        PipelineError("driver-unreachable", "the attempt is over"),
        StateError("disk-full", "no room"),
        PipelineError("host-unreachable", "h2"),
    ]
    said = [c for e in errors if (c := complaint(e, "h", CACHE)) is not None]
    found = first_cause(said)
    assert found is not None
    assert found.code == "disk-full"
    alone = first_cause(said[:1])
    assert alone is not None
    assert alone.code == "driver-unreachable"


def test_another_version_is_told_of() -> None:
    assert other_version(own_version(), "h1") is None
    found = other_version("99.0", "h1")
    assert found is not None
    assert found.code == "other-package"
    assert found.message.startswith("on h1: anabranch 99.0 is installed there")

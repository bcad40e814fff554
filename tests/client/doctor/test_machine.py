"""Tests of the checks of the machine: free ports, writable folders."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from anabranch_client.doctor.findings import Verdict
from anabranch_client.doctor.machine import check_folder, check_port
from anabranch_client.processes.children import free_port
from tests.support.surroundings.disks import small_disk


def test_a_port_is_free_or_somebody_has_it() -> None:
    assert check_port("127.0.0.1", free_port()).verdict is Verdict.OK
    assert check_port("127.0.0.1", 0).said == "any free one"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = check_port("127.0.0.1", port)
        own = check_port("127.0.0.1", port, f"http://127.0.0.1:{port}")
    assert (found.verdict, found.facts["pid"]) == (Verdict.FAIL, os.getpid())
    assert f"process {os.getpid()} (" in found.said
    assert "--port 0" in found.remedy
    assert own.verdict is Verdict.OK


def test_an_address_that_is_not_this_machine_s() -> None:
    found = check_port("192.0.2.1", free_port())
    assert found.verdict is Verdict.FAIL
    assert "--host" in found.remedy


def test_a_folder_is_written_to_or_would_be_made_and_nothing_is_left(tmp_path: Path) -> None:
    there, not_yet = check_folder(tmp_path), check_folder(tmp_path / "a" / "b")
    assert (there.verdict, not_yet.verdict) == (Verdict.OK, Verdict.OK)
    assert "can be written" in there.said
    assert "can be made" in not_yet.said
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        found = check_folder(path)
        assert (found.verdict, "--dir" in found.remedy) == (Verdict.FAIL, True)


@pytest.mark.parametrize(("room", "verdict"), [("64m", Verdict.FAIL), ("512m", Verdict.WARN)])
def test_a_disk_with_little_room(room: str, verdict: Verdict, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", room):
        found = check_folder(tmp_path / "disk" / "home")
    assert found.verdict is verdict, found.said
    assert "make room" in found.remedy

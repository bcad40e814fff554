"""Tests of finding the process that holds a folder's lock, in this process or another."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from anabranch_client.doctor.findings import Verdict
from anabranch_client.doctor.holder import check_holder, owner
from anabranch_client.supervise.home import TOKEN_VARIABLE, held

_HOLD = """
import sys, time
from pathlib import Path
from anabranch_client.supervise.home import held
with held(Path(sys.argv[1])) as home:
    home.listens("http://127.0.0.1:7")
    print("held", flush=True)
    sys.stdin.read()
"""


def test_nobody_holds_a_folder_that_is_new_or_was_left(tmp_path: Path) -> None:
    assert check_holder(tmp_path / "nowhere").said == "nobody"
    with held(tmp_path):
        pass
    found = check_holder(tmp_path)
    assert (found.verdict, found.said, found.facts) == (Verdict.OK, "nobody", {"pid": None})


def test_the_holder_is_named_with_its_command_and_since_when(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        found = check_holder(tmp_path)
        (tmp_path / "up.json").unlink()
        unwritten = check_holder(tmp_path)
        holder.communicate("")
    assert found.verdict is Verdict.OK
    assert found.facts["pid"] == unwritten.facts["pid"] == holder.pid
    assert found.facts["command"][-1] == str(tmp_path)
    assert f"process {holder.pid} (" in found.said
    assert " ago)" in found.said or "just now)" in found.said
    assert found.said.endswith(", http://127.0.0.1:7")
    assert check_holder(tmp_path).said == "nobody"


def test_what_a_killed_up_has_left(tmp_path: Path) -> None:
    with held(tmp_path) as home:
        environment = {**os.environ, TOKEN_VARIABLE: home.holder.token}
        left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE,
                                env=environment)  # fmt: skip
        text = (tmp_path / "up.json").read_text()
    (tmp_path / "up.json").write_text(text)
    try:
        found = check_holder(tmp_path)
        assert (found.verdict, found.facts["left"]) == (Verdict.WARN, [left.pid])
        assert "anabranch down" in found.remedy
        assert left.poll() is None
    finally:
        left.communicate(b"\n")
    assert check_holder(tmp_path).verdict is Verdict.OK


def test_a_runtime_that_works_on_the_state_by_itself(tmp_path: Path) -> None:
    lock = tmp_path / "state" / "lock"
    lock.parent.mkdir()
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found, by = check_holder(tmp_path), owner(lock)
    assert (found.verdict, found.facts["pid"]) == (Verdict.WARN, os.getpid())
    assert by is not None
    assert by.pid == os.getpid()
    assert "uses its state" in found.said
    assert owner(lock) is None

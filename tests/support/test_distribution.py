"""Tests that a distributed run assigns a file to one worker, and all files of one session to the
same.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.support.distribution import SESSIONS

TESTS = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("n", range(6))
def test_one(n, worker_id):
    with Path({ran!r}).open("a") as file:
        file.write(worker_id + " {name}\\n")
"""


def test_a_file_and_a_session_have_one_worker(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for name in ("a", "b", "spark_c", "kafka_f", "d", "spark_e", "kafka_g"):
        session = next((s for s in SESSIONS if s.partition(":")[0] == name.partition("_")[0]), "")
        text = TESTS.format(ran=str(ran), name=name) + f"# {session}"
        (tmp_path / f"test_{name}.py").write_text(text)
    options = ["-q", "-c", "/dev/null", f"--rootdir={tmp_path}", "-p", "no:schemathesis"]
    workers = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *options, *workers),
            *("-p", "tests.support.distribution", str(tmp_path)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    lines = [line.split() for line in ran.read_text().splitlines()]
    workers_of, files_of = defaultdict[str, set[str]](set), defaultdict[str, list[str]](list)
    for worker, name in lines:
        name = name.partition("_")[0]
        workers_of[name].add(worker)
        files_of[worker].append(name)
    assert len(lines) == 42
    assert {n: len(ids) for n, ids in workers_of.items()} == dict.fromkeys(
        ("a", "b", "spark", "kafka", "d"), 1
    )
    for session in ("spark", "kafka"):
        (worker,) = workers_of[session]
        assert files_of[worker][:12] == [session] * 12, "they begin first"

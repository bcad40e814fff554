"""A real distributed run gives a file to one worker, and files of Spark's session to the same."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.support.distribution import SESSION

TESTS = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("n", range(6))
def test_one(n, worker_id):
    with Path({ran!r}).open("a") as file:
        file.write(worker_id + " {name}\\n")
"""


def test_a_file_and_spark_s_session_have_one_worker(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for name in ("a", "b", "spark_c", "d", "spark_e"):
        text = TESTS.format(ran=str(ran), name=name) + f"# {SESSION}" * ("spark" in name)
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
    assert len(lines) == 30
    assert {n: len(ids) for n, ids in workers_of.items()} == {"a": 1, "b": 1, "spark": 1, "d": 1}
    (worker,) = workers_of["spark"]
    assert files_of[worker][:12] == ["spark"] * 12, "they begin first"

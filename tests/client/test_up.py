"""``anabranch up`` in a process of its own: it comes up, serves, and goes without a trace."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from anabranch_client.api import Client

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "home"
    argv = [sys.executable, "-m", "anabranch_client", "up", "--dir", str(home), "--port", "0"]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)
    try:
        url = _address(tmp_path / "out", process)
        with Client(url) as client:
            assert client.streams() == []
            assert client.settings().mode == "live"
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) == 3
        process.send_signal(number)
        assert process.wait(60) == 0
        gone, alive = psutil.wait_procs(family, timeout=1)
        assert (len(gone), alive) == (3, [])
    finally:
        process.kill()
        process.wait()
    assert sorted(p.name for p in (home / "logs").iterdir()) == [
        "redis.log",
        "runtime.log",
        "service.log",
    ]


def _address(out: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, out.read_text()
        text = out.read_text()
        if "Ctrl-C" in text:
            return next(line for line in text.splitlines() if "dashboard" in line).split()[-1]
        time.sleep(0.1)
    raise AssertionError(f"it never came up: {out.read_text()}")

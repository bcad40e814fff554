"""Tests of hosts in namespaces: they share nothing, links can be bad, and nothing remains
of them.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.surroundings.network import Host, Network, installed, left_behind, network


@pytest.fixture
def found(namespaces: None, tmp_path: Path) -> Iterator[Network]:
    with network(tmp_path / "network") as found:
        yield found


def _serving(host: Host, tmp_path: Path) -> str:
    host.start([sys.executable, "-m", "http.server", "8000"], tmp_path / f"{host.name}.log")
    url = f"http://{host.address}:8000/"
    deadline = time.monotonic() + 120
    while _seconds(url, 1) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return url


def _seconds(url: str, patience: float) -> float | None:
    """Return the seconds that an answer takes; None: there was none."""
    started = time.monotonic()
    try:
        urllib.request.urlopen(url, timeout=patience).close()
    except OSError:
        return None
    return time.monotonic() - started


def _quickest(url: str) -> float:
    """Return the shortest of several answers' times: others may be delayed by a busy machine."""
    return min(_seconds(url, 60) or 60.0 for _ in range(10))


def test_hosts_share_no_files_but_those_they_are_given(found: Network, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "note").write_text("for all")
    (tmp_path / "other").write_text("for nobody")
    one, two = found.add("one", [given]), found.add("two", [given])
    one.run("sh", "-c", f"echo mine > /tmp/own && echo all > {given}/back")
    assert one.run("cat", "/tmp/own", f"{given}/note") == "mine\nfor all"
    assert two.run("cat", f"{given}/back") == "all\n"
    theirs = {tmp_path.parts[2], *(folder.parts[2] for folder in installed())}
    assert set(two.run("ls", "/tmp").split()) == theirs
    assert two.run("ls", str(tmp_path)) == "given\n"
    assert two.run("hostname") == "two\n"
    assert two.run("ls", "/dev/shm") == ""
    assert not two.processes()


def test_a_host_has_so_much_room(found: Network) -> None:
    host = found.add("small", size="1m")
    with pytest.raises(AssertionError, match="No space left"):
        host.run("dd", "if=/dev/zero", "of=/tmp/large", "bs=1M", "count=2")


def test_links_are_cut_slow_and_whole_again(found: Network, tmp_path: Path) -> None:
    host = found.add("one")
    url = _serving(host, tmp_path)
    quick = _quickest(url)
    host.disconnect()
    assert _seconds(url, 1) is None
    host.connect()
    assert _seconds(url, 60) is not None
    host.worsen(0.2, 0.0)
    assert (_seconds(url, 60) or 0) >= 0.4
    host.mend()
    # A packet without a listener is retransmitted after some time.
    assert _seconds(url, 60) is not None
    assert max(quick, _quickest(url)) < 0.4


def test_a_link_that_loses_all_lets_nothing_through(found: Network, tmp_path: Path) -> None:
    host = found.add("one")
    url = _serving(host, tmp_path)
    host.worsen(0.0, 1.0)
    assert _seconds(url, 1) is None
    host.mend()
    assert _seconds(url, 60) is not None


def test_a_paused_host_answers_nobody(found: Network, tmp_path: Path) -> None:
    import signal

    host = found.add("one")
    url = _serving(host, tmp_path)
    assert host.signal(signal.SIGSTOP) == 1
    assert _seconds(url, 1) is None
    host.signal(signal.SIGCONT)
    assert _seconds(url, 60) is not None


def test_a_host_ends_with_all_that_it_runs(found: Network, tmp_path: Path) -> None:
    host = found.add("one")
    _serving(host, tmp_path)
    (process,) = host.processes()
    host.kill()
    assert not host.alive
    assert not psutil.pid_exists(process.pid)
    again = found.add("one-more")
    assert again.address != host.address


def test_nothing_is_left_of_a_network(namespaces: None, tmp_path: Path) -> None:
    with network(tmp_path / "network") as made:
        host = made.add("one")
        _serving(host, tmp_path)
        host.worsen(0.1, 0.1)
        processes = [*host.processes(), psutil.Process(host.init), psutil.Process(made.holder.pid)]
        prefix = made.prefix
    assert not left_behind(prefix)
    assert not [p for p in processes if p.is_running()]
    mounts = Path("/proc/mounts").read_text()
    assert str(tmp_path) not in mounts


def test_nothing_is_left_where_its_maker_is_killed(namespaces: None, tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from tests.support.surroundings.network import network\n"
        f"with network(Path({str(tmp_path / 'network')!r})) as made:\n"
        "    host = made.add('one'); print(made.prefix, host.init, flush=True); time.sleep(60)\n"
    )
    maker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    prefix, init = maker.stdout.readline().split()
    maker.kill()
    maker.wait()
    maker.stdout.close()
    assert not left_behind(prefix)
    psutil.wait_procs([psutil.Process(int(init))] if psutil.pid_exists(int(init)) else [], 60)
    assert not psutil.pid_exists(int(init))

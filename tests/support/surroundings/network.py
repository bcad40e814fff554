"""Hosts of a network on one machine: Linux namespaces on a separate switch.

A host has its own address, name, processes, ``/tmp`` and ``/dev/shm``; of other files it sees
installed programs and shared folders. A host exists as long as its first process, which ends with
this one, so nothing is left over. Outside of hosts there is only a link by which this process is
connected to the network; it is removed with the switch.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

#: Maximum seconds for parts of a network to appear or disappear on a busy machine.
PATIENCE = 120.0
#: Prefix of a command that is killed when this process ends.
_LASTING = ("setpriv", "--pdeathsig", "KILL")
#: Program of a wire that delays and loses frames.
_WIRE = Path(__file__).with_name("bad_wire.py")
#: A host's first process: it mounts the host's folders, then waits to be killed. Shared folders are
#: bound below /mnt while their parent folders are covered.
_INIT = r"""
set -e
size=$1; hosts=$2; shift 2
number=0
mount --bind "$hosts" /etc/hosts
mount -t tmpfs -o size=1m aside /mnt
for folder in "$@"; do
  mkdir /mnt/$number; mount --bind "$folder" /mnt/$number; number=$((number + 1))
done
mount -t tmpfs -o size=$size private /tmp
mount -t tmpfs -o size=$size private /dev/shm
number=0
for folder in "$@"; do
  mkdir -p "$folder"; mount --bind /mnt/$number "$folder"; umount /mnt/$number
  number=$((number + 1))
done
umount /mnt
ip link set lo up
echo ready
# Whoever is left without a parent becomes its child, and goes when it ends.
exec env --ignore-signal=CHLD sleep infinity
"""


def installed() -> list[Path]:
    """Return the folders of interpreter, packages and tests, if they are below folders that hosts
    do not share.
    """
    roots = (Path(sys.base_prefix), Path(sys.prefix), Path(__file__).parents[3])
    own = [r.resolve() for r in roots if r.resolve().is_relative_to("/tmp")]
    return [r for r in dict.fromkeys(own) if not any(r != o and r.is_relative_to(o) for o in own)]


def unavailable() -> str:
    """Return the reason why networks can't be created here; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "namespaces are Linux's"
    missing = [name for name in ("ip", "unshare", "nsenter", "setpriv") if not shutil.which(name)]
    if missing:
        return f"not installed: {', '.join(missing)} (packages iproute2 and util-linux)"
    command = ["unshare", "-n", "-m", "-u", "-p", "-f", "--mount-proc", "ip", "link", "set", "lo"]
    tried = subprocess.run([*command, "up"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"namespaces are not permitted: {tried.stderr.strip()}; this takes privileges (root)"
    return ""


@dataclass(slots=True)
class Host:
    """A host of a network.

    Attributes:
        init: the host's first process, as this process sees it.
        cut: whether the host's link is down.
    """

    name: str
    address: str
    network: Network
    init: int
    holder: subprocess.Popen[str]
    cut: bool = False
    _entered: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _wire: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> str:
        """Name of the switch's end of the host's link."""
        return f"to-{self.name}"

    def command(self, argv: Sequence[str], folder: Path | str = "/") -> list[str]:
        """Return a command that runs ``argv`` on the host, in ``folder``."""
        enter = ["nsenter", f"--target={self.init}", "--net", "--mount", "--uts", "--pid"]
        return [*enter, "--", "env", "-C", str(folder), *argv]

    def start(
        self,
        argv: Sequence[str],
        log: Path,
        variables: Mapping[str, str] | None = None,
        folder: Path | str = "/",
    ) -> subprocess.Popen[bytes]:
        """Start ``argv`` on the host; its output is appended to ``log``."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            # Otherwise, a process that is stopped (SIGSTOP) when all others end would remain.
            started = subprocess.Popen(
                [*_LASTING, *self.command(argv, folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(variables or {})},
            )
        self._entered.append(started)
        return started

    def run(self, *argv: str) -> str:
        """Run a short command on the host; return its output."""
        done = subprocess.run(
            self.command(argv), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def processes(self) -> list[psutil.Process]:
        """Return all processes on the host except the first."""
        space = _space(self.init)
        found = []
        for process in psutil.process_iter():
            if process.pid != self.init and space and _space(process.pid) == space:
                found.append(process)
        return found

    def signal(self, number: signal.Signals) -> int:
        """Send a signal to all processes on the host; return their number."""
        found = self.processes()
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        if number == signal.SIGCONT:
            # Local processes that wait for processes on the host have been stopped with them.
            for started in self._entered:
                if started.poll() is None:
                    started.send_signal(number)
        return len(found)

    @property
    def alive(self) -> bool:
        """Whether the host exists."""
        return self.holder.poll() is None

    def disconnect(self) -> None:
        """Take the host's link down, without closing connections."""
        self.network.switch("ip", "link", "set", self.port, "down")
        self.cut = True

    def connect(self) -> None:
        """Take the host's link up."""
        self.network.switch("ip", "link", "set", self.port, "up")
        self.cut = False

    def vanish(self) -> None:
        """End the host as in a power cut: no connection is closed."""
        self.disconnect()
        self.kill()

    def kill(self) -> None:
        """Kill all processes of the host; the kernel closes their connections."""
        self.mend()
        with suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        # The first process ends when processes that were started from outside have been waited for.
        for started in self._entered:
            if started.poll() is None:
                started.send_signal(signal.SIGCONT)
            started.wait(PATIENCE)
        self.holder.wait(PATIENCE)
        self.network.hosts.pop(self.name, None)

    def worsen(self, delay: float, loss: float) -> None:
        """Delay frames from and to the host by ``delay`` seconds in total, and lose the share
        ``loss`` of them.
        """
        self.mend()
        number = self.address.rpartition(".")[2]
        argv = [sys.executable, str(_WIRE), f"a{number}", f"b{number}", str(delay / 2), str(loss)]
        enter = ["nsenter", f"--target={self.network.holder.pid}", "--net", "--"]
        self._wire = subprocess.Popen([*enter, *argv], stdout=subprocess.PIPE)
        assert self._wire.stdout is not None
        assert self._wire.stdout.readline() == b"ready\n"
        switch = self.network.switch
        switch("ip", "link", "add", f"side{number}", "type", "bridge", "forward_delay", "0")
        for link, bridge in (
            (self.port, f"side{number}"),
            (f"a{number}", f"side{number}"),
            (f"b{number}", "switch"),
        ):
            switch("ip", "link", "set", link, "master", bridge)
        for link in (f"side{number}", f"a{number}", f"b{number}"):
            switch("ip", "link", "set", link, "up")

    def mend(self) -> None:
        """Undo :meth:`worsen`."""
        if self._wire is None:
            return
        number = self.address.rpartition(".")[2]
        self.network.switch("ip", "link", "set", self.port, "master", "switch")
        self.network.switch("ip", "link", "del", f"side{number}")
        self._wire.kill()
        self._wire.wait()
        assert self._wire.stdout is not None
        self._wire.stdout.close()
        self._wire = None


@dataclass(slots=True)
class Network:
    """Hosts connected by one switch.

    Attributes:
        own: address of this process in the network.
        folder: folder with the list of the hosts' names.
    """

    holder: subprocess.Popen[str]
    prefix: str
    link: str
    folder: Path
    hosts: dict[str, Host] = field(default_factory=dict)
    _last: int = 1

    @property
    def own(self) -> str:
        """Address of this process in the network."""
        return f"{self.prefix}.1"

    def add(
        self, name: str, shared: Sequence[Path] = (), size: str = "2g", *, private: bool = True
    ) -> Host:
        """Create a host, whose ``/tmp`` has the ``shared`` folders, and space for ``size``. Without
        ``private``, it has this machine's ``/tmp``.
        """
        self._last += 1
        address = f"{self.prefix}.{self._last}"
        known = self.folder / "hosts"
        with known.open("a") as file:
            file.write(f"{address} {name}\n")
        script = _INIT if private else _INIT.replace("mount -t tmpfs -o size=$size", ": ")
        folders = [str(folder) for folder in (*shared, *installed())] if private else []
        spaces = ["unshare", "-m", "-n", "-u", "-p", "-f", "--kill-child", "--mount-proc"]
        holder = subprocess.Popen(
            [
                "setpriv",
                "--pdeathsig",
                "KILL",
                *spaces,
                "sh",
                "-c",
                script,
                "init",
                size,
                str(known),
                *folders,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        _await_ready(holder)
        (init,) = psutil.Process(holder.pid).children()
        host = Host(name, address, self, init.pid, holder)
        self.hosts[name] = host
        self.switch(
            *("ip", "link", "add", host.port, "type", "veth"),
            *("peer", "name", "eth0", "netns", str(init.pid)),
        )
        self.switch("ip", "link", "set", host.port, "master", "switch")
        self.switch("ip", "link", "set", host.port, "up")
        host.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        host.run("hostname", name)
        return host

    def switch(self, *argv: str) -> None:
        """Run a command in the namespace of the switch."""
        enter = ("nsenter", f"--target={self.holder.pid}", "--net", "--")
        done = subprocess.run([*enter, *argv], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"

    def close(self) -> None:
        """End all hosts and the switch."""
        for host in list(self.hosts.values()):
            host.kill()
        subprocess.run(["ip", "link", "del", self.link], capture_output=True, check=False)
        self.holder.kill()
        self.holder.wait(PATIENCE)


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """Context with a network without hosts; ``folder`` gets the list of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    used = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    while (prefix := f"10.{random.randint(100, 250)}.{random.randint(0, 250)}") in used:
        pass
    holder = subprocess.Popen(
        [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "-n",
            "sh",
            "-c",
            "ip link set lo up; echo ready; exec sleep infinity",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _await_ready(holder)
    found = Network(holder, prefix, f"ana{holder.pid}", folder)
    try:
        switch = found.switch
        switch("ip", "link", "add", "switch", "type", "bridge", "forward_delay", "0")
        switch("ip", "link", "set", "switch", "up")
        _root("ip", "link", "add", found.link, "type", "veth", "peer", "name", "here", "netns",
              str(holder.pid))  # fmt: skip
        switch("ip", "link", "set", "here", "master", "switch")
        switch("ip", "link", "set", "here", "up")
        _root("ip", "address", "add", f"{found.own}/24", "dev", found.link)
        _root("ip", "link", "set", found.link, "up")
        yield found
    finally:
        found.close()


def _root(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def _await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.readline()
    if said != "ready\n":
        process.kill()
        raise AssertionError(f"no namespace: {process.stderr.read()}")
    _drop(process.stdout, process.stderr)


def _drop(*files: IO[str]) -> None:
    for file in files:
        file.close()


def _space(pid: int) -> str:
    """Return the PID namespace of a process's children; empty if the process has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def left_behind(prefix: str) -> list[str]:
    """Return the addresses that remain of a closed network; waits for them to disappear."""
    deadline = time.monotonic() + PATIENCE
    while True:
        text = subprocess.run(["ip", "address"], capture_output=True, text=True, check=True).stdout
        found = [line.strip() for line in text.splitlines() if f" {prefix}." in line]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)

"""``anabranch replay`` on a host of a cluster, as users run it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch_contract import codec
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary, Progress
from tests.support.oracles.oracle import OracleQuery
from tests.support.worlds.hosts import Cluster
from tests.support.worlds.replay_check import Verdict, check


@dataclass(slots=True)
class HostedReplay:
    """A replay of ``scenario`` into ``out``, both below a folder of the driver's host."""

    world: Cluster
    scenario: Path
    out: Path
    name: str
    process: subprocess.Popen[bytes]

    @property
    def text(self) -> str:
        """Output of the replay so far."""
        return self.world.said(self.name)

    @property
    def log(self) -> str:
        """Log of the replay's runtime."""
        path = self.out / "logs" / "runtime.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def committed(self) -> int:
        """Number of committed batches."""
        return committed(self.world)

    def snapshots(self) -> list[Snapshot]:
        """Return the measurements of ended epochs, in order."""
        with self.world.redis() as server:
            (name,) = server.scan_iter("anabranch-*:boundaries")
            texts = server.lrange(name, 0, -1)
        ended = [Boundary.loads(str(text)).snapshot for text in texts]
        return [codec.loads(found, Snapshot) for found in ended if found is not None]

    def await_commits(self, wanted: int, seconds: float = 300.0) -> int:
        """Wait until ``wanted`` batches have been committed, or the replay has ended; return their
        number.
        """
        deadline = time.monotonic() + seconds
        while (found := self.committed()) < wanted and self.process.poll() is None:
            assert time.monotonic() < deadline, f"no commit after {found} within {seconds:.0f} s"
            time.sleep(0.05)
        return found

    def verdict(
        self, queries: Mapping[str, OracleQuery] | None = None, seconds: float = 300.0
    ) -> Verdict:
        """Wait for the end of the replay, and compare its results and report with the oracle."""
        code = self.process.wait(seconds)
        if code:
            return Verdict(0, 0, (f"exit code {code}: {self.text[-2000:]}",))
        return check(self.scenario, self.out, queries)

    def close(self) -> None:
        """End the remaining processes of the replay."""
        self.world.end_commands()
        self.process.wait(60)


def begin(
    world: Cluster,
    scenario: Path,
    *options: str,
    store: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> HostedReplay:
    """Start a replay into ``out`` in the scenario's folder; Redis is emptied before."""
    with world.redis() as server:
        server.flushall()
    folder = scenario.parent
    name, out = f"replay-{folder.parent.name}-{folder.name}", folder / "out"
    store = world.store(f"{name}-{time.time_ns()}") if store is None else store
    arguments = ["replay", str(scenario), "--out", str(out), "--json", "--master", world.master]
    arguments += ["--object-store", store]
    process = world.command(name, *arguments, *options, variables=variables)
    return HostedReplay(world, scenario, out, name, process)


def committed(world: Cluster) -> int:
    """Return the number of batches that the only pipeline of a cluster has committed."""
    with world.redis() as server:
        found = list(server.scan_iter("anabranch-*:runtime"))
        text = server.get(found[0]) if found else None
    return 0 if text is None else Progress.loads(str(text)).committed

"""The real processes of a pipeline, which tests kill, restart, and wait for with a deadline."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from anabranch_client.processes.allowed import Permissions
from anabranch_client.processes.children import free_port, session, signal_all
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec, running
from anabranch_client.rest.api import Client
from anabranch_contract.protocol.progress import Progress

#: Starting the JVM on a machine that is busy takes long.
PATIENCE = 240.0


def wait_until(what: str, holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Poll until ``holds()`` is true, at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.05)


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Context in which ``work`` runs in a thread; its event is set at the context's end."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def kill(pipeline: Pipeline, name: str) -> None:
    """Kill the process ``name`` and all processes of its session with SIGKILL, at once."""
    child = next(c for c in pipeline.children if c.name == name)
    everybody = session(child.pid)
    signal_all(everybody, signal.SIGKILL)
    child.process.wait()
    psutil.wait_procs(everybody, timeout=10)
    assert not session(child.pid)
    pipeline.children.remove(child)


@dataclass(slots=True)
class LivePipeline:
    """Service and runtime processes in live mode, with epochs of one second."""

    pipeline: Pipeline
    client: Client
    epoch_seconds: float

    @property
    def results(self) -> Path:
        """Folder of the runtime's results."""
        return self.pipeline.spec.results

    def progress(self) -> Progress:
        """Return the runtime's last heartbeat; fails if the runtime has failed."""
        found = self.progress_or_none()
        assert found is not None
        return found

    def start_runtime(self) -> None:
        """Start the runtime process, and wait for its heartbeat."""
        self.pipeline.start_runtime("--epoch-seconds", str(self.epoch_seconds))
        self.wait("the runtime's start", lambda: self.progress_or_none() is not None)

    def progress_or_none(self) -> Progress | None:
        """Return the runtime's heartbeat; None if there has not been one."""
        return self.pipeline.progress()

    def has_current_views(self) -> bool:
        """Whether views include all committed batches; after a stop, the next start catches up."""
        return not any(self.progress().telemetry.view_lag.values())

    def wait(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Poll until ``holds()`` is true; fails at once if a process has ended."""

        def look() -> bool:
            self.pipeline.check()
            return holds()

        wait_until(what, look, seconds)


@contextmanager
def live_pipeline(
    home: Path, *, epoch_batches: int = 3, epoch_seconds: float = 1.0, master: str = "local[2]"
) -> Iterator[LivePipeline]:
    """Context with a live pipeline without streams."""
    spec = spec_of(home, mode="live", epoch_batches=epoch_batches, master=master)
    with running(spec) as pipeline:
        client = pipeline.start_service()
        live = LivePipeline(pipeline, client, epoch_seconds)
        live.start_runtime()
        with client:
            yield live


def spec_of(home: Path, **changes: object) -> PipelineSpec:
    """The description of a pipeline below ``home`` whose restarted service keeps its port."""
    given: dict[str, object] = {
        "home": home,
        "results": home / "results",
        "mode": "step",
        "namespace": "test",
        "optimizer": "clash",
        "parallelism": 2,
        "epoch_batches": 3,
        "port": free_port(),
        "master": "local[2]",
        "access": Permissions((home.parent,), ("*",), ("jdbc", "fax")),
    }
    return PipelineSpec(**{**given, **changes})  # type: ignore[arg-type]

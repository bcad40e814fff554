"""A pipeline as processes: Redis (embedded or given), the service, the runtime.

They are started in that order and stopped in the reverse order. All write below one folder:
``logs/``, ``redis/``, ``state/``.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import textwrap
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from anabranch_client.errors import ClientError, ProcessError
from anabranch_client.processes.allowed import Permissions
from anabranch_client.processes.channel import Channel
from anabranch_client.processes.children import Child, spawn, wait_for
from anabranch_client.processes.environment import (
    CACHE_DIRECTORY_VARIABLE,
    OBJECT_STORE_VARIABLE,
    REDIS_URL_VARIABLE,
)
from anabranch_client.processes.redis_server import start_redis
from anabranch_client.processes.signals import ending_signals
from anabranch_client.rest.api import Client
from anabranch_client.rest.calls import has_certificate
from anabranch_contract.connectors.addresses import masked
from anabranch_contract.protocol.progress import Progress

_SERVICE_SECONDS = 60.0
_RUNTIME_SECONDS = 120.0
_LEAVE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """The start parameters of a pipeline.

    Attributes:
        home: folder for logs, Redis data and the runtime's state.
        results: folder that the runtime writes results to, one folder per query.
        mode: ``step`` (the runtime waits for the planner at every epoch) or ``live``.
        redis_url: URL of an external server to use instead of the embedded one.
        durable: whether the embedded server keeps its data over a restart.
        port: port of the service; 0: any free port.
        host: address on which the service listens.
        auth: whether the service requires tokens: ``auto`` (if it listens beyond loopback),
            ``required`` or ``off``.
        allow_hostname: further host names of the service, separated by commas.
        master: Spark's master; None leaves it to the runtime.
        revise_batches: in step mode, number of batches before the runtime waits for a revision;
            None: never.
        object_store: URL of the runtime's durable state; None: from the environment.
        cache_directory: folder on each host of a cluster for segments cached from the object store;
            None: from the environment.
        standby: whether a second runtime waits for the end of the first, ready to take over.
        access: permissions of registrations.
        variables: further environment variables of the runtime, which other users can't see (unlike
            its command line).
    """

    home: Path
    results: Path
    mode: str
    namespace: str
    optimizer: str
    parallelism: int
    epoch_batches: int
    redis_url: str | None = None
    durable: bool = False
    port: int = 0
    master: str | None = None
    host: str = "127.0.0.1"
    auth: str = "auto"
    allow_hostname: str = ""
    revise_batches: int | None = None
    object_store: str | None = None
    cache_directory: str | None = None
    standby: bool = False
    access: Permissions = field(default_factory=Permissions)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def admin_token_file(self) -> Path:
        """File of the first administrator's token, if the service requires tokens."""
        return self.home / "admin.token"

    @property
    def access_arguments(self) -> list[str]:
        """The flags of service and runtime for the permissions of registrations."""
        return self.access.arguments(self.home, self.results)

    @property
    def logs(self) -> Path:
        """Folder of the processes' logs."""
        return self.home / "logs"

    @property
    def port_file(self) -> Path:
        """File to which the service writes its port."""
        return self.home / "service.port"

    @property
    def state(self) -> Path:
        """Folder of the runtime's state."""
        return self.home / "state"


def spawn_service(
    spec: PipelineSpec, redis_url: str, port: int, extra: Mapping[str, str] | None = None
) -> Child:
    """Start the service on ``port``; it may not listen yet on return. The URL of Redis is passed in
    the environment, because all users can see command lines."""
    spec.port_file.unlink(missing_ok=True)
    argv = [
        *(sys.executable, "-m", "anabranch_service", "--namespace", spec.namespace),
        *("--port", str(port), "--port-file", str(spec.port_file)),
        *("--mode", spec.mode, "--optimizer", spec.optimizer),
        *("--parallelism", str(spec.parallelism)),
        *("--epoch-batches", str(spec.epoch_batches)),
        *("--host", spec.host, "--auth", spec.auth),
        *("--admin-token-file", str(spec.admin_token_file)),
        *(("--allow-hostname", spec.allow_hostname) if spec.allow_hostname else ()),
        # The supervisor uses plain HTTP, so override TLS variables of the environment.
        *("--tls-cert", "", "--tls-key", ""),
        *spec.access_arguments,
    ]
    variables = {**(extra or {}), REDIS_URL_VARIABLE: redis_url}
    return spawn("service", argv, spec.logs / "service.log", variables)


def spawn_runtime(
    spec: PipelineSpec,
    redis_url: str,
    run: str,
    *options: str,
    extra: Mapping[str, str] | None = None,
) -> Child:
    """Start the runtime's process; ``run``: id under which it reports its progress."""
    argv = [
        *(sys.executable, "-m", "anabranch_runtime", "--namespace", spec.namespace),
        *("--state", str(spec.state), "--results", str(spec.results)),
        *("--epoch-batches", str(spec.epoch_batches), "--mode", spec.mode),
        *(("--master", spec.master) if spec.master else ()),
        *(("--revise-batches", str(spec.revise_batches)) if spec.revise_batches else ()),
        *spec.access_arguments,
        *("--run", run, *options),
    ]
    variables = {**spec.variables, **(extra or {}), REDIS_URL_VARIABLE: redis_url}
    for name, given in (
        (OBJECT_STORE_VARIABLE, spec.object_store),
        (CACHE_DIRECTORY_VARIABLE, spec.cache_directory),
    ):
        if given is not None:
            variables[name] = given
    return spawn("runtime", argv, spec.logs / "runtime.log", variables, reports=True)


def service_url(spec: PipelineSpec) -> str:
    """URL of the service, once it has written its port."""
    own = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(spec.host, spec.host)
    name = f"[{own}]" if ":" in own else own
    return f"http://{name}:{int(spec.port_file.read_text())}"


def requires_token(url: str) -> bool:
    """Whether the service at ``url`` refuses requests without a token."""
    return _status(f"{url}/v1/whoami", 5.0) == 401


def answers(url: str, seconds: float = 5.0) -> bool:
    """Whether the service's process is up and serves requests."""
    return _status(f"{url}/healthz", seconds) == 200


def _status(url: str, seconds: float) -> int | None:
    """Status of the service's answer to GET; None if there is no answer."""
    verify = has_certificate(url)
    try:
        return httpx.get(url, timeout=seconds, trust_env=False, verify=verify).status_code
    except httpx.HTTPError:
        return None


@dataclass(slots=True)
class Pipeline:
    """A running pipeline, made by :func:`running`.

    Attributes:
        run: id of the runtime's last started run; empty before the first.
    """

    spec: PipelineSpec
    channel: Channel
    redis_url: str
    children: list[Child] = field(default_factory=list)
    url: str = ""
    run: str = ""

    def pids(self) -> list[int]:
        """Process ids of all started children."""
        return [child.pid for child in self.children]

    def check(self) -> None:
        """Raise an error if a process of the pipeline has ended or the runtime has failed.

        Raises:
            ProcessError: naming the process, with the last line of its log.
        """
        progress = self.progress()
        if progress is not None and progress.state == "failed":
            reason = textwrap.shorten(progress.error or "it gave no reason", 600)
            raise ProcessError(
                f"the runtime failed: {reason}",
                remedy=f"its log is {self.spec.logs / 'runtime.log'}",
            )
        for child in self.children:
            child.check()

    def progress(self) -> Progress | None:
        """Progress of the runtime's last started run; None if not written yet.

        Redis may still hold the progress of an earlier run, possibly a failed one.
        """
        progress = self.channel.progress()
        return progress if progress is not None and progress.run == self.run else None

    def start_service(self) -> Client:
        """Start the service and wait until it answers."""
        child = spawn_service(self.spec, self.redis_url, self.spec.port)
        self.children.append(child)
        what = "starting the service"
        wait_for(what, self.spec.port_file.is_file, child, _SERVICE_SECONDS)
        self.url = service_url(self.spec)
        wait_for(what, lambda: answers(self.url), child, _SERVICE_SECONDS)
        # A token in the environment would be for another service.
        return Client(self.url, token="")

    def start_runtime(self, *options: str) -> None:
        """Start the runtime, with further command-line ``options``."""
        self.run = uuid.uuid4().hex
        self.channel.clear_stop()
        self.children.append(spawn_runtime(self.spec, self.redis_url, self.run, *options))

    def wait_for_runtime(self) -> None:
        """Wait until the runtime has reported that it works."""
        wait_for("starting the runtime", self._alive, self._runtime_process(), _RUNTIME_SECONDS)

    def finish_runtime(self) -> None:
        """Request the runtime to exit, and wait until it has.

        Raises:
            ProcessError: the runtime exited with an error, or did not exit.
        """
        child = self._runtime_process()
        self.channel.stop()
        code = child.wait(_LEAVE_SECONDS)
        if code is None:
            raise ProcessError(
                f"the runtime did not leave within {_LEAVE_SECONDS:.0f} s",
                remedy=f"its log is {child.log}",
            )
        if code != 0:
            child.check()
        child.stop()
        self.children.remove(child)

    def close(self) -> None:
        """End all processes, the last started first."""
        with contextlib.suppress(ClientError):
            self.channel.stop()
        for child in reversed(self.children):
            child.stop()
        self.children.clear()

    def _runtime_process(self) -> Child:
        return next(child for child in self.children if child.name == "runtime")

    def _alive(self) -> bool:
        self.check()
        progress = self.progress()
        return progress is not None and progress.state in ("running", "idle")


@contextlib.contextmanager
def running(spec: PipelineSpec) -> Iterator[Pipeline]:
    """A pipeline with only Redis running; all its processes are ended on exit.

    Keys in an external server are deleted on exit, unless ``spec.durable``.

    Raises:
        ProcessError: Redis does not start, or the external server does not answer.
    """
    spec.home.mkdir(parents=True, exist_ok=True)
    children: list[Child] = []
    if spec.redis_url is None:
        log = spec.logs / "redis.log"
        server, url = start_redis(spec.home / "redis", log, durable=spec.durable)
        children.append(server)
    else:
        url = spec.redis_url
    channel = Channel(url, spec.namespace)
    pipeline = Pipeline(spec, channel, url, children)
    try:
        if not channel.ping():
            raise ProcessError(
                f"Redis at {masked(url)} does not answer",
                remedy=f"correct {REDIS_URL_VARIABLE}, or unset it for an embedded server",
            )
        yield pipeline
    finally:
        with _uninterrupted():
            pipeline.close()
            if spec.redis_url is not None and not spec.durable:
                with contextlib.suppress(ClientError):
                    channel.forget()
            channel.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore signals, because a second Ctrl-C must not leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with ending_signals(signal.SIG_IGN):
        yield

"""``anabranch up`` and ``anabranch down``: a pipeline on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from anabranch_client.cli.context import HOME, CacheDirectory, Folder, Master, ObjectStore
from anabranch_client.doctor.requirements import WHOLE, require
from anabranch_client.errors import ClientError, ProcessError, UsageError
from anabranch_client.processes.allowed import Permissions
from anabranch_client.processes.environment import REDIS_URL_VARIABLE, given_redis_url
from anabranch_client.processes.pipeline import PipelineSpec, requires_token
from anabranch_client.processes.signals import ending_signals
from anabranch_client.supervise.home import HeldError, held, holder_of, reap, refuse_held
from anabranch_client.supervise.supervisor import Supervisor
from anabranch_contract.connectors.addresses import masked
from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.spark_settings import VARIABLE, given_settings, is_local

#: Default partitions per store on a cluster: several for each of a few hosts.
PARTITIONS = 16
_OWN_REDIS = (
    "note: only this machine reaches the Redis that is started here; for executors on others name a"
    f" server that all reach in {REDIS_URL_VARIABLE}"
)


def up(
    folder: Folder = HOME,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, envvar="ANABRANCH_PORT", help="Port of the service; 0: any."
        ),
    ] = 8080,
    optimizer: Annotated[Optimizer, typer.Option(help="Optimizer of the plan.")] = (
        Optimizer.CLASH
    ),
    parallelism: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Partitions per store; on one host more than 1 only costs time.",
            show_default=f"1; on a cluster {PARTITIONS}",
        ),
    ] = None,
    epoch_batches: Annotated[int, typer.Option(min=1, help="Batches per epoch.")] = 10,
    namespace: Annotated[str, typer.Option(help="Prefix of all Redis keys.")] = "anabranch",
    master: Master = None,
    object_store: ObjectStore = None,
    cache_directory: CacheDirectory = None,
    meeting_port: Annotated[
        int | None,
        typer.Option(
            envvar="ANABRANCH_MEETING_PORT",
            min=0,
            max=65535,
            help="Port of the driver on which a cluster's tasks exchange messages; 0: any.",
        ),
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting of Spark, e.g. spark.executor.memory=4g; repeatable"
            f" ({VARIABLE} has one in each line).",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address that the service listens on.")] = "127.0.0.1",
    auth: Annotated[
        Literal["auto", "required", "off"],
        typer.Option(help="Tokens: auto requires them beyond loopback."),
    ] = "auto",
    allow_hostname: Annotated[
        list[str] | None,
        typer.Option(help="A further name that the service answers to (repeatable)."),
    ] = None,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Keep a second runtime ready to take over when the first ends; it costs memory.",
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Start in the background; return when all is ready.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds that --wait waits.", show_default=True)
    ] = 300.0,
    allow_path: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder below which sources and sinks may name files, beside --dir and the"
            " working directory; repeatable."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="host, host:port, *.suffix or * that sources and sinks may connect to, beside"
            " this machine's own names; repeatable."
        ),
    ] = None,
    allow_format: Annotated[
        list[str] | None,
        typer.Option(help="Further format of sources and sinks, such as jdbc; repeatable."),
    ] = None,
    functions: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="NAME.py|FOLDER",
            help="Python module, or folder of modules, whose functions `anabranch function add` may"
            " register for queries; repeatable.",
        ),
    ] = None,
) -> None:
    """Start Redis (or use ANABRANCH_REDIS_URL), service and runtime, and keep them running.

    Processes that die are restarted. Ctrl-C or `anabranch down` stops them all.
    """
    require(WHOLE, "anabranch up")
    folder = folder.resolve()
    on_cluster = not is_local(master or "local")
    spec = PipelineSpec(
        home=folder,
        results=folder / "results",
        mode="live",
        namespace=namespace,
        optimizer=optimizer,
        parallelism=parallelism or (PARTITIONS if on_cluster else 1),
        epoch_batches=epoch_batches,
        redis_url=given_redis_url(),
        durable=True,
        port=port,
        master=master,
        object_store=object_store,
        cache_directory=cache_directory,
        standby=standby,
        host=host,
        auth=auth,
        allow_hostname=",".join(allow_hostname or ()),
        access=_access(allow_path, allow_host, allow_format, functions),
        variables={
            **_given("ANABRANCH_MEETING_PORT", meeting_port),
            **_given(VARIABLE, _spark_settings(spark_conf)),
        },
    )
    if spec.redis_url is None and on_cluster:
        _say(_OWN_REDIS)
    if wait:
        _in_background(spec, timeout)
    else:
        _supervise(spec, None)


def _given(name: str, value: object) -> dict[str, str]:
    return {} if value is None else {name: str(value)}


def _spark_settings(texts: list[str] | None) -> str:
    """Parse the settings of Spark into the value of the runtime's environment variable.

    Raises:
        UsageError: a text is not a setting, or names a setting that must not be changed.
    """
    try:
        return "\n".join(f"{key}={value}" for key, value in given_settings(texts).items())
    except ValueError as error:
        raise UsageError(str(error)) from error


def _access(
    paths: list[Path] | None,
    hosts: list[str] | None,
    formats: list[str] | None,
    functions: list[Path] | None,
) -> Permissions:
    """Permissions in addition to the pipeline's folder: the working directory, and the options or
    else the environment variables (which the processes would ignore, because flags are given)."""

    def given(values: Sequence[object] | None, name: str, separator: str) -> tuple[str, ...]:
        if values is not None:
            return tuple(map(str, values))
        return tuple(filter(None, os.environ.get(f"ANABRANCH_{name}", "").split(separator)))

    here = Path.cwd()
    # A working directory "/" (as under a service manager) would permit access to the whole machine.
    roots = [] if here == Path(here.root) else [here]
    roots += [Path(path).resolve() for path in given(paths, "ALLOW_PATH", ":")]
    modules = tuple(Path(path).absolute() for path in given(functions, "FUNCTIONS", ":"))
    for module in modules:
        if not (module.is_dir() or (module.suffix == ".py" and module.is_file())):
            raise UsageError(
                f"{module} is neither a folder nor a file NAME.py",
                field="--functions",
                remedy="name a Python module, or a folder of modules",
            )
    return Permissions(
        tuple(roots), given(hosts, "ALLOW_HOST", ","), given(formats, "ALLOW_FORMAT", ","), modules
    )


def down(
    folder: Folder = HOME,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds to wait for the pipeline to stop.")
    ] = 120.0,
) -> None:
    """Stop the pipeline that `anabranch up` runs in a folder, and wait for its end."""
    folder = folder.resolve()
    try:
        refuse_held(folder)
    except HeldError:
        _stop(folder, timeout)
    else:
        left = 0
        if holder_of(folder) is not None:
            # An `up` was killed. Hold the folder, so that no other `up` starts meanwhile.
            with held(folder):
                left = len(reap(folder))
        typer.echo(f"nothing runs in {folder}" + (f"; {left} processes ended" if left else ""))


def _stop(folder: Path, timeout: float) -> None:
    holder = holder_of(folder)
    process = None if holder is None else holder.process()
    if process is None:
        raise ProcessError(f"whoever holds {folder} is just starting", remedy="try again")
    process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        with contextlib.suppress(HeldError):
            refuse_held(folder)
            typer.echo("stopped")
            return
        time.sleep(0.1)
    raise ProcessError(
        f"{holder} has not stopped within {timeout:.0f} s", remedy=f"see {folder / 'logs'}"
    )


def _supervise(spec: PipelineSpec, pipe: int | None) -> None:
    """Run a pipeline until a signal ends it; report readiness or an error through ``pipe``."""
    stop = threading.Event()
    with ending_signals(lambda number, frame: stop.set()):
        try:
            with held(spec.home) as home:
                spec.logs.mkdir(parents=True, exist_ok=True)

                def ready() -> None:
                    for line in _facts(supervisor, pid=os.getpid() if pipe is not None else None):
                        _say(line)
                    _say("ready")
                    if pipe is not None:
                        _write(pipe, ready=_facts(supervisor, pid=os.getpid()))

                supervisor = Supervisor(spec, home, _say, ready, stop)
                _say(f"starting in {spec.home}")
                supervisor.run()
        except ClientError as error:
            if pipe is not None:
                _write(pipe, error=str(error))
            raise
    _say("stopped")


def _facts(supervisor: Supervisor, pid: int | None) -> list[str]:
    """The URLs and folders of a pipeline, a line each."""
    spec = supervisor.spec
    secret = f" (password: {spec.home / 'redis' / 'password'})" if spec.redis_url is None else ""
    end = "Ctrl-C" if pid is None else f"anabranch down --dir {spec.home}"
    token = f"administrator's token: {spec.admin_token_file}"
    return [
        f"service and dashboard: {supervisor.url}",
        *([token] if requires_token(supervisor.url) else []),
        f"redis:                 {masked(supervisor.redis_url)}{secret}",
        f"results:               {spec.results}",
        f"logs:                  {spec.logs}",
        f"{end} stops everything",
    ]


def _in_background(spec: PipelineSpec, timeout: float) -> None:
    """Run :func:`_supervise` in a separate process, and return when the pipeline is ready.

    Raises:
        ProcessError: the process ended, or was not ready in time and has been stopped.
    """
    refuse_held(spec.home)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _detach()
        code = 0
        try:
            _supervise(spec, writing)
        except ClientError as error:
            code = error.exit_code
        finally:
            os._exit(code)
    os.close(writing)
    try:
        found = _read(reading, timeout)
        if found is None:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            raise ProcessError(
                f"it was not ready within {timeout:.0f} s and has been stopped",
                remedy=f"see {spec.logs}, or allow more by --timeout",
            )
        if "ready" not in found:
            os.waitpid(child, 0)
            said = str(found.get("error") or "it ended without a word")
            raise ProcessError(said, remedy="" if "error" in found else f"see {spec.logs}")
        for line in found["ready"]:
            typer.echo(line)
        typer.echo("ready")
    except BaseException:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGTERM)
        raise
    finally:
        os.close(reading)


def _read(pipe: int, timeout: float) -> dict[str, list[str]] | None:
    """Read a document from ``pipe``; empty if it was closed without one, None after a time-out."""
    deadline = time.monotonic() + timeout
    text = b""
    while not text.endswith(b"\n"):
        if not select.select([pipe], [], [], max(deadline - time.monotonic(), 0.0))[0]:
            return None
        part = os.read(pipe, 65536)
        if not part:
            return {}
        text += part
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def _write(pipe: int, **document: object) -> None:
    with contextlib.suppress(OSError):
        os.write(pipe, json.dumps(document).encode() + b"\n")


def _detach() -> None:
    """Detach ``anabranch up`` from the terminal."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _say(line: str) -> None:
    """Print a line of ``anabranch up``; a closed terminal must not end the pipeline."""
    with contextlib.suppress(OSError):
        typer.echo(line)

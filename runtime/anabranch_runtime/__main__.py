"""``python -m anabranch_runtime``: run one pipeline until a stop is requested or an error ends it.

To save time, modules that are not needed to parse the arguments are imported while the JVM starts.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch_contract.collection import collect_rarely
from anabranch_contract.connectors.addresses import masked
from anabranch_contract.connectors.user_functions import VARIABLE as FUNCTIONS
from anabranch_contract.errors import StructuredError
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.spark_settings import OPTION, VARIABLE, given_settings
from anabranch_runtime.spark.session import starting
from anabranch_runtime.storage.depth import Verify
from anabranch_runtime.task.memory import byte_size

if TYPE_CHECKING:
    from anabranch_contract.connectors.policy import AccessPolicy

#: Executors' default folder for files of the object store, relative to their working directory.
CACHE_DIRECTORY = "anabranch-cache"
_ACCESS = {
    "--allow-path": "allow reading and writing of files below this directory",
    "--allow-host": "allow connections to this host (host, host:port, *.suffix, or * for all)",
    "--allow-format": "allow this further format of sources and sinks",
    "--reserve-path": "forbid any access to this directory within the allowed ones",
    "--read-only-path": "forbid sinks to write to this directory within the allowed ones",
    "--functions": "allow queries the functions of this module NAME.py, or folder of modules",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the runtime's command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="anabranch_runtime", description=__doc__)
    environ = os.environ
    parser.add_argument("--redis-url", default=environ.get("ANABRANCH_REDIS_URL"))
    parser.add_argument("--namespace", default=environ.get("ANABRANCH_NAMESPACE", "anabranch"))
    parser.add_argument("--state", type=Path, default=environ.get("ANABRANCH_STORAGE"))
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--master", default=environ.get("ANABRANCH_MASTER", "local[*]"))
    parser.add_argument(
        "--epoch-batches", type=int, default=int(environ.get("ANABRANCH_EPOCH_BATCHES", "4"))
    )
    parser.add_argument("--epoch-seconds", type=float, default=5.0)
    parser.add_argument(
        "--interim-seconds",
        type=_seconds_of_period,
        default=environ.get("ANABRANCH_INTERIM_SECONDS", "3"),
        metavar="SECONDS",
        help="length of a period of interim measurements in seconds, 0.1 to 3600",
    )
    parser.add_argument(
        "--revise-batches",
        type=_batches,
        default=None,
        metavar="BATCHES",
        help="in step mode, number of batches after which the driver waits for a revision "
        "of the rules",
    )
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.LIVE)
    parser.add_argument(
        "--verify",
        type=Verify,
        choices=list(Verify),
        default=environ.get("ANABRANCH_VERIFY", Verify.FULL),
        help="check of the stored state at a start: of every byte, or of the pack files' footers",
    )
    parser.add_argument(
        "--target-latency",
        type=float,
        default=float(environ.get("ANABRANCH_TARGET_LATENCY", "1")),
        help="target duration of a batch in seconds, kept by limiting its input; 0: no target",
    )
    parser.add_argument(
        "--stuck-after",
        type=float,
        default=float(environ.get("ANABRANCH_STUCK_AFTER", "600")),
        metavar="SECONDS",
        help="cancel and retry a batch whose tasks have made no progress for this many seconds",
    )
    parser.add_argument(
        "--memory-limit",
        type=_bytes,
        default=environ.get("ANABRANCH_MEMORY_LIMIT"),
        metavar="BYTES",
        help="limit of the private memory of all Python workers of a host, such as 2GB; JVMs and "
        "memory-mapped state are not counted (default: no limit)",
    )
    parser.add_argument(
        "--table-memory",
        type=_bytes,
        default=environ.get("ANABRANCH_TABLE_MEMORY") or None,
        metavar="BYTES",
        help="limit of the memory of one query's groups, rankings or rows of outer joins, such as "
        "4GB; a query beyond it waits, others go on (default: a quarter of the machine's memory)",
    )
    parser.add_argument(
        "--object-store",
        default=environ.get("ANABRANCH_OBJECT_STORE") or None,
        metavar="URI",
        help="object store that holds the state, such as s3://bucket/prefix?region=eu-west-1; the "
        "state directory is then its cache (default: the state is in the directory only)",
    )
    parser.add_argument(
        "--cache-size",
        type=_bytes,
        default=environ.get("ANABRANCH_CACHE_SIZE") or None,
        metavar="BYTES",
        help="limit of the state directory as a cache of the object store, such as 20GB (default: "
        "no limit)",
    )
    parser.add_argument(
        "--cache-directory",
        default=environ.get("ANABRANCH_CACHE_DIRECTORY") or CACHE_DIRECTORY,
        metavar="PATH",
        help="on a cluster with --object-store, each host's folder for cached state; a relative "
        "path is below the executors' working directories (default: %(default)s)",
    )
    parser.add_argument(
        "--meeting-port",
        type=_port,
        default=environ.get("ANABRANCH_MEETING_PORT") or "0",
        metavar="PORT",
        help="on a cluster with --object-store, the driver's port for tasks; 0: any free port",
    )
    parser.add_argument(
        OPTION,
        action="append",
        metavar="KEY=VALUE",
        help=f"a setting of Spark, such as spark.executor.memory=4g (repeatable; {VARIABLE} holds "
        "one per line)",
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="wait while another process runs the pipeline, and take over when it ends",
    )
    parser.add_argument(
        "--run", metavar="ID", help="id of this run in heartbeat and progress (default: random)"
    )
    parser.add_argument(
        "--error-fd",
        type=int,
        metavar="N",
        help="file descriptor to which the error that ends the process is written as JSON",
    )
    access = parser.add_argument_group(
        "permissions of sources and sinks (repeatable)",
        "variables such as ANABRANCH_ALLOW_PATH hold lists: paths separated by colons, others by "
        "commas",
    )
    for flag, what in _ACCESS.items():
        access.add_argument(flag, action="append", help=what)
    options = parser.parse_args(arguments)
    if not options.redis_url:
        parser.error("--redis-url (or ANABRANCH_REDIS_URL) is missing")
    if options.state is None:
        parser.error("--state (or ANABRANCH_STORAGE) is missing")
    if options.cache_size is not None and options.object_store is None:
        parser.error(
            "--cache-size (ANABRANCH_CACHE_SIZE) needs --object-store: rows evicted from the "
            "state directory must be somewhere else"
        )
    try:
        spark = given_settings(options.spark_conf)
    except ValueError as error:
        parser.error(str(error))
    if options.functions is not None:
        # Workers find the folders of user functions in this inherited variable.
        environ[FUNCTIONS] = ":".join(map(os.path.abspath, options.functions))
    collect_rarely()
    begun = starting(options.master, spark)
    import structlog

    from anabranch_runtime.control import Control
    from anabranch_runtime.driver.exit_cause import report_cause
    from anabranch_runtime.driver.pipeline import SparkPipeline
    from anabranch_runtime.driver.settings import ClusterSettings, DriverSettings, MemoryLimits

    settings = DriverSettings(
        state=Path(options.state).absolute(),
        results=options.results.absolute(),
        epoch_batches=options.epoch_batches,
        epoch_seconds=options.epoch_seconds,
        interim_seconds=options.interim_seconds,
        revise_batches=options.revise_batches,
        mode=options.mode,
        verify=options.verify,
        target_latency=options.target_latency if options.target_latency > 0 else None,
        stuck_after=options.stuck_after,
        memory=MemoryLimits(options.memory_limit, options.table_memory),
        object_store=options.object_store,
        cache_size=options.cache_size,
        cluster=ClusterSettings(options.cache_directory, options.meeting_port),
        spark=spark,
        access=_access(options),
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            _without_passwords,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    control = Control(options.redis_url, options.namespace, options.run)

    def report(error: StructuredError) -> None:
        sys.stderr.write(f"anabranch_runtime: {masked(str(error))}\n")
        sys.stderr.flush()
        report_cause(options.error_fd, control.run, error)

    def abandon(error: StructuredError) -> None:
        """End the runtime's process at once: an orderly close would wait for a hanging task."""
        report(error)
        os._exit(1)

    try:
        SparkPipeline(settings, control, options.master, begun, abandon, options.standby).run()
    except StructuredError as error:
        report(error)
        return 1
    except Exception as error:
        report_cause(options.error_fd, control.run, error)
        raise
    return 0


def _without_passwords(
    _: object, __: str, entry: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Mask passwords in a log entry (structlog processor): Spark's errors quote options."""
    for name, value in entry.items():
        if isinstance(value, str):
            entry[name] = masked(value)
    return entry


def _access(options: argparse.Namespace) -> AccessPolicy:
    """Return the access policy for sources and sinks; the pipeline's own files are forbidden."""
    from anabranch_contract.connectors.policy import AccessPolicy
    from anabranch_runtime.sources.permitted import resolve

    found = AccessPolicy.read(os.environ, vars(options), resolve).with_server(options.redis_url)
    return replace(
        found,
        reserved=(*found.reserved, resolve(str(options.state))),
        read_only=(*found.read_only, resolve(str(options.results))),
    )


def _seconds_of_period(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from 0.1 to 3600 (ANABRANCH_INTERIM_SECONDS)"
        )
    return seconds


def _batches(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of batches, 1 or more")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port, 0 (any) to 65535 (ANABRANCH_MEETING_PORT)"
        )
    return int(text)


def _bytes(text: str) -> int:
    try:
        return byte_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())

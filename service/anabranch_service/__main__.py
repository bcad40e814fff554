"""``python -m anabranch_service``: the control plane as a process."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from pathlib import Path

import structlog
import uvicorn

from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.protocol.progress import Mode
from anabranch_service.access.first_token import read_file
from anabranch_service.app import create_app
from anabranch_service.clock import utc_now
from anabranch_service.errors import SettingsError
from anabranch_service.settings import ENV_PREFIX, Auth, Settings
from anabranch_service.transport.serving import listening_socket, server_config


def parser() -> argparse.ArgumentParser:
    """The command line; every option has a variable ``ANABRANCH_<OPTION>`` as well."""
    root = argparse.ArgumentParser(
        prog="python -m anabranch_service",
        description=__doc__,
        epilog=f"Every option can be given as {ENV_PREFIX}<OPTION>, too.",
    )
    root.add_argument("--redis-url", help="redis:// or unix:// address of the state")
    root.add_argument("--namespace", help="prefix of all keys; one pipeline per namespace")
    root.add_argument("--host", help="address to listen on")
    root.add_argument("--port", type=int, help="port to listen on; 0 picks a free one")
    root.add_argument("--port-file", help="file to write the port to once listening")
    root.add_argument("--mode", choices=list(Mode), help="live, or step for replay")
    root.add_argument("--optimizer", choices=list(Optimizer))
    root.add_argument("--objective", choices=list(Objective))
    root.add_argument("--parallelism", type=int, help="partitions per store")
    root.add_argument("--epoch-batches", type=int, help="batches per epoch")
    root.add_argument("--poll-seconds", type=float, help="how often to look for a boundary")
    root.add_argument("--solve-seconds", type=float, help="time limit of one solve")
    root.add_argument("--kept-epochs", type=int, help="published epochs to keep")
    root.add_argument(
        "--auth", choices=list(Auth), help="tokens: auto requires them beyond loopback"
    )
    root.add_argument("--admin-token-file", help="the first administrator's token; made if missing")
    root.add_argument("--allow-hostname", help="further names to answer to, separated by commas")
    root.add_argument("--tls-cert", help="certificate chain (PEM) to serve HTTPS with")
    root.add_argument("--tls-key", help="its private key (PEM)")
    root.add_argument("--body-limit", type=int, help="bytes that a request's body may have")
    root.add_argument("--connections", type=int, help="connections open at one time")
    root.add_argument(
        "--request-seconds", type=float, help="time for a request's header, and for its body"
    )
    root.add_argument("--max-aliases", type=int, help="aliases of one query")
    root.add_argument("--max-columns", type=int, help="columns of one stream, or of results")
    root.add_argument("--max-streams", type=int, help="streams that may be registered")
    root.add_argument("--max-queries", type=int, help="queries that may run")
    root.add_argument(
        "--registration-seconds", type=float, help="time for understanding one registration"
    )
    several = {
        "--allow-path": "directory below which files may be read and written",
        "--allow-host": "host, host:port, *.suffix or * that may be connected to",
        "--allow-format": "further format of sources and sinks",
        "--reserve-path": "directory within them that may not be used",
        "--read-only-path": "directory within them that sinks may not write to",
    }
    for flag, what in several.items():
        root.add_argument(flag, action="append", help=f"{what}; repeatable")
    root.add_argument("--log-level", choices=["debug", "info", "warning", "error"])
    return root


def configure_logging(level: str) -> None:
    """Structured lines on standard error: JSON, or for reading where it is a terminal."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


class Server(uvicorn.Server):
    """A server that says where it listens as soon as it does."""

    def __init__(self, config: uvicorn.Config, port: int, port_file: str) -> None:
        super().__init__(config)
        self.bound_port = port
        self.port_file = port_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then write the port file: whoever waits for it never reads half of it."""
        await super().startup(sockets)
        if not self.started:
            return
        structlog.get_logger(__name__).info(
            "listening", host=self.config.host, port=self.bound_port
        )
        if self.port_file:
            target = Path(self.port_file)
            draft = target.with_name(f"{target.name}.{os.getpid()}.tmp")
            draft.write_text(f"{self.bound_port}\n")
            draft.replace(target)


def main(argv: list[str] | None = None) -> int:
    """Run until told to stop."""
    try:
        settings = Settings.from_process(vars(parser().parse_args(argv)))
        if settings.requires_tokens:
            # Looked at here for a plain message; the application registers it.
            read_file(Path(settings.admin_token_file), utc_now())
    except SettingsError as cause:
        sys.stderr.write(f"{cause}\n")
        return 2
    configure_logging(settings.log_level)
    config = server_config(create_app(settings), settings)
    listening = listening_socket(config)
    server = Server(config, listening.getsockname()[1], settings.port_file)
    server.run(sockets=[listening])
    return 0 if server.started else 3


if __name__ == "__main__":
    raise SystemExit(main())

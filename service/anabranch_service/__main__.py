"""``python -m anabranch_service``: the control plane as a process."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import get_args

import structlog
import uvicorn

from anabranch_contract.collection import collect_rarely
from anabranch_service.access.first_token import read_file
from anabranch_service.app import create_app
from anabranch_service.clock import utc_now
from anabranch_service.errors import SettingsError
from anabranch_service.settings import ENV_PREFIX, OPTIONS, ServiceSettings
from anabranch_service.transport.serving import listening_socket, server_config


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser. ``ANABRANCH_<OPTION>`` in the environment sets an option."""
    root = argparse.ArgumentParser(
        prog="python -m anabranch_service",
        description=__doc__,
        epilog=f"Every option can be given as {ENV_PREFIX}<OPTION>, too.",
    )
    for name, option in OPTIONS.items():
        kind, text = option.kind, option.help
        flag, choices = f"--{name.replace('_', '-')}", get_args(kind)
        if kind in (int, float):
            root.add_argument(flag, type=kind, help=text)
        elif choices or issubclass(kind, StrEnum):
            root.add_argument(flag, choices=choices or list(kind), help=text)
        else:
            root.add_argument(flag, help=text)
    repeated = {
        "--allow-path": "directory below which files can be read and written",
        "--allow-host": "allowed host to connect to: host, host:port, *.suffix or *",
        "--allow-format": "further format of sources and sinks",
        "--reserve-path": "excluded directory within the allowed ones",
        "--read-only-path": "read-only directory within the allowed ones",
        "--functions": "module NAME.py, or folder of modules, with functions for queries",
    }
    for flag, text in repeated.items():
        root.add_argument(flag, action="append", help=f"{text}; repeatable")
    return root


def configure_logging(level: str) -> None:
    """Log structured lines to standard error: JSON, or readable text on a terminal."""
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
    """HTTP server that logs its address, and writes its port file, once it listens."""

    def __init__(self, config: uvicorn.Config, settings: ServiceSettings) -> None:
        super().__init__(config)
        self.bound_port = settings.port
        self.port_file = settings.port_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then write the port file atomically, so that no reader sees a partial file."""
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
    """Run the service until a signal stops it; returns the exit status."""
    try:
        settings = ServiceSettings.read(os.environ, vars(parser().parse_args(argv)))
        if settings.requires_tokens:
            # An unusable token file is reported here, as a plain message without a traceback.
            read_file(Path(settings.admin_token_file), utc_now())
    except SettingsError as cause:
        sys.stderr.write(f"{cause}\n")
        return 2
    configure_logging(settings.log_level)
    collect_rarely()
    # Bind first: the application reports the socket's address, which is unique to this process.
    listening = listening_socket(settings)
    settings = replace(settings, port=listening.getsockname()[1])
    server = Server(server_config(create_app(settings), settings), settings)
    server.run(sockets=[listening])
    return 0 if server.started else 3


if __name__ == "__main__":
    raise SystemExit(main())

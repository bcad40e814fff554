"""How the process was started: command line over environment over defaults, frozen."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.protocol.progress import Mode
from anabranch_service.errors import SettingsError

ENV_PREFIX = "ANABRANCH_"


class Auth(StrEnum):
    """Whether requests need a token: ``AUTO`` where the service listens beyond loopback."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of the process.

    Attributes:
        port: 0 picks a free one.
        port_file: where the port is written (atomically) once the service listens.
        optimizer, objective, parallelism: until ``PUT /v1/settings`` says otherwise.
        epoch_batches: batches per epoch; the service only hands it on to whoever asks.
        poll_seconds: how often the epoch loop looks for a new boundary.
        solve_seconds: time limit of one solve.
        kept_epochs: how many published epochs are kept, rulesets and statistics with them.
        auth: whether requests need a token; ``off`` is refused beyond loopback.
        admin_token_file: where the first administrator's token is read from, and written to where
            there is none. Used only where tokens are required.
        allow_hostname: further names that the service answers to, separated by commas; ``*``: any.
        tls_cert, tls_key: files (PEM) to serve HTTPS with; empty: HTTP.
        body_limit: bytes that the body of a request may have.
        connections: open at one time.
        request_seconds: that the header, and then the body, of a request may take to arrive.
        max_aliases: aliases of one query, those of its subqueries included: planning takes longer
            than in proportion to them.
        max_columns: of one stream, and of one query's results.
        max_streams, max_queries: that may be registered; of queries those that are to run.
        registration_seconds: that a registration may take until it is understood.
        access: what registrations may ask for; see :meth:`AccessPolicy.read` for its variables.

    >>> Settings.read({"ANABRANCH_PORT": "0", "ANABRANCH_MODE": "step"}, {"port": 81}).port
    81
    """

    redis_url: str = "redis://127.0.0.1:6379/0"
    namespace: str = "anabranch"
    host: str = "127.0.0.1"
    port: int = 8080
    port_file: str = ""
    mode: Mode = Mode.LIVE
    optimizer: Optimizer = Optimizer.CLASH
    objective: Objective = Objective.DEFAULT
    parallelism: int = 4
    epoch_batches: int = 10
    poll_seconds: float = 0.02
    solve_seconds: float = 10.0
    kept_epochs: int = 4096
    log_level: str = "info"
    auth: Auth = Auth.AUTO
    admin_token_file: str = "anabranch-admin.token"
    allow_hostname: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    body_limit: int = 16 * 1024 * 1024
    connections: int = 512
    request_seconds: float = 30.0
    max_aliases: int = 16
    max_columns: int = 1000
    max_streams: int = 1000
    max_queries: int = 10_000
    registration_seconds: float = 20.0
    access: AccessPolicy = field(default_factory=AccessPolicy)

    def __post_init__(self) -> None:
        _require(bool(self.namespace), "namespace", "must not be empty")
        _require(0 <= self.port <= 65535, "port", "must be between 0 and 65535")
        _require(1 <= self.parallelism <= 1024, "parallelism", "must be between 1 and 1024")
        _require(self.epoch_batches >= 1, "epoch_batches", "must be at least 1")
        _require(self.poll_seconds > 0, "poll_seconds", "must be positive")
        _require(self.solve_seconds > 0, "solve_seconds", "must be positive")
        for name in ("max_aliases", "max_columns", "max_streams", "max_queries"):
            _require(getattr(self, name) >= 1, name, "must be at least 1")
        # The runtime goes by the newest few, and after a roll back by some before them.
        _require(self.kept_epochs >= 100, "kept_epochs", "must be at least 100")
        _require(
            self.log_level in ("debug", "info", "warning", "error"),
            "log_level",
            "must be debug, info, warning or error",
        )
        _require(
            self.auth is not Auth.OFF or is_loopback(self.host),
            "auth",
            f"must not be off where others can connect: {self.host or 'every address'} is not "
            "a loopback address",
        )
        _require(bool(self.admin_token_file), "admin_token_file", "must not be empty")
        _require(bool(self.tls_cert) == bool(self.tls_key), "tls_key", "goes with tls_cert")
        _require(self.body_limit >= 1024, "body_limit", "must be at least 1024")
        _require(self.connections >= 16, "connections", "must be at least 16")
        for name in ("request_seconds", "registration_seconds"):
            _require(getattr(self, name) > 0, name, "must be positive")

    @property
    def requires_tokens(self) -> bool:
        """Whether a request without a token is refused."""
        if self.auth is Auth.AUTO:
            return not is_loopback(self.host)
        return self.auth is Auth.REQUIRED

    @property
    def hostnames(self) -> tuple[str, ...]:
        """The names that the service answers to, beside loopback's and the address of a socket."""
        given = (name.strip() for name in self.allow_hostname.split(","))
        return (self.host, *filter(None, given))

    @staticmethod
    def read(environ: Mapping[str, str], given: Mapping[str, Any]) -> Settings:
        """The settings under ``environ``, overridden by what ``given`` holds other than None.

        Raises:
            SettingsError: a value is malformed or out of range.
        """
        values: dict[str, Any] = {}
        for spec in fields(Settings):
            if spec.name == "access":
                continue
            text = environ.get(ENV_PREFIX + spec.name.upper())
            if text is not None:
                values[spec.name] = _convert(spec.name, text)
            if given.get(spec.name) is not None:
                values[spec.name] = _convert(spec.name, given[spec.name])
        values["access"] = AccessPolicy.read(environ, given, os.path.realpath)
        return replace(Settings(), **values)

    @staticmethod
    def from_process(given: Mapping[str, Any]) -> Settings:
        """:meth:`read` with the environment of this process."""
        return Settings.read(os.environ, given)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a service that listens on ``host``.

    >>> [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", "box")]
    [True, True, True, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _convert(name: str, value: Any) -> Any:
    kind = type(getattr(Settings(), name))
    try:
        return kind(value)
    except ValueError:
        choices = f"one of {', '.join(kind)}" if issubclass(kind, StrEnum) else f"of {kind}"
        raise SettingsError(
            "bad-setting",
            f"{value!r} is no valid value",
            field=name,
            remedy=f"give {'a value ' if 'of <' in choices else ''}{choices}",
        ) from None


def _require(condition: bool, name: str, message: str) -> None:
    if not condition:
        raise SettingsError("bad-setting", message, field=name, remedy="correct the setting")

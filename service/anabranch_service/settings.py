"""How the process was started: command line over environment over defaults, frozen."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias, get_args

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.protocol.keys import INTERIMS_KEPT
from anabranch_contract.protocol.progress import Mode
from anabranch_planner.forecast.rates import EVIDENCE, PERIODS
from anabranch_service.errors import SettingsError

ENV_PREFIX = "ANABRANCH_"

_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-fA-F:]+\](:\d{1,5})?")

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


class Auth(StrEnum):
    """Whether requests need a token: ``AUTO`` where the service listens beyond loopback."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of the process, with the help of their options. Optimizer, objective,
    parallelism and revision_gain are initial values of ``PATCH /v1/settings``.

    Attributes:
        access: bounds of registrations; see :meth:`AccessPolicy.read` for its variables.

    >>> ServiceSettings.read({"ANABRANCH_PORT": "0", "ANABRANCH_MODE": "step"}, {"port": 81}).port
    81
    """

    redis_url: Annotated[str, "redis:// or unix:// address of the state"] = (
        "redis://127.0.0.1:6379/0"
    )
    namespace: Annotated[str, "prefix of all keys; one pipeline per namespace"] = "anabranch"
    host: Annotated[str, "address to listen on"] = "127.0.0.1"
    port: Annotated[int, "port to listen on; 0 picks a free one"] = 8080
    port_file: Annotated[str, "file to write the port to once listening"] = ""
    mode: Annotated[Mode, "live, or step for replay"] = Mode.LIVE
    optimizer: Annotated[Optimizer, "optimizer of the plan"] = Optimizer.CLASH
    objective: Annotated[Objective, "objective of the plan"] = Objective.SECONDS
    parallelism: Annotated[int, "partitions per store"] = 4
    epoch_batches: Annotated[int, "batches per epoch"] = 10
    poll_seconds: Annotated[float, "seconds between checks for an epoch boundary"] = 0.02
    solve_seconds: Annotated[float, "time limit of one solve"] = 10.0
    series_periods: Annotated[int, "newest periods used by forecasts and revisions"] = PERIODS
    revision_gain: Annotated[float, "least saving of a revision, as a share of the cost"] = 0.1
    lease_seconds: Annotated[float, "seconds of silence after which another service leads"] = 5.0
    lineage_url: Annotated[str, "target of OpenLineage events: http(s):// or file:///path"] = ""
    lineage_token_file: Annotated[str, "file with the bearer token of that target"] = ""
    kept_epochs: Annotated[int, "published epochs to keep, with rulesets and statistics"] = 4096
    kept_bytes: Annotated[int, "bytes of rulesets and records of epochs to keep"] = 256 << 20
    ended_days: Annotated[float, "days for which ended queries are shown"] = 7.0
    log_level: Annotated[LogLevel, "least level to log"] = "info"
    auth: Annotated[Auth, "tokens: auto requires them beyond loopback"] = Auth.AUTO
    admin_token_file: Annotated[str, "the first administrator's token; made if missing"] = (
        "anabranch-admin.token"
    )
    allow_hostname: Annotated[str, "further names to answer to, separated by commas; *: any"] = ""
    allow_origin: Annotated[str, "origins whose pages may use it (CORS), separated by commas"] = ""
    tls_cert: Annotated[str, "certificate chain (PEM) to serve HTTPS with"] = ""
    tls_key: Annotated[str, "its private key (PEM)"] = ""
    body_limit: Annotated[int, "greatest size of a request body in bytes"] = 16 * 1024 * 1024
    connections: Annotated[int, "maximum number of open connections"] = 512
    request_seconds: Annotated[float, "seconds for a request's header, and for its body"] = 30.0
    # Planning time grows faster than linearly with them; aliases of subqueries count.
    max_aliases: Annotated[int, "maximum number of aliases per query"] = 16
    max_columns: Annotated[int, "maximum number of columns per stream, and of results"] = 1000
    max_streams: Annotated[int, "maximum number of registered streams"] = 1000
    max_queries: Annotated[int, "maximum number of running queries"] = 10_000
    registration_seconds: Annotated[float, "seconds for understanding a registration"] = 20.0
    access: AccessPolicy = field(default_factory=AccessPolicy)

    def __post_init__(self) -> None:
        _require(bool(self.namespace), "namespace", "must not be empty")
        _require(0 <= self.port <= 65535, "port", "must be between 0 and 65535")
        _require(1 <= self.parallelism <= 1024, "parallelism", "must be between 1 and 1024")
        for name in ("epoch_batches", "max_aliases", "max_columns", "max_streams", "max_queries"):
            _require(getattr(self, name) >= 1, name, "must be at least 1")
        for name in ("poll_seconds", "solve_seconds", "request_seconds", "registration_seconds"):
            _require(getattr(self, name) > 0, name, "must be positive")
        _require(
            EVIDENCE <= self.series_periods <= INTERIMS_KEPT,
            "series_periods",
            f"must be between {EVIDENCE} and {INTERIMS_KEPT}, as many as Redis keeps",
        )
        # Less, and a pause of the garbage collector or of the machine is taken for a death.
        _require(0.2 <= self.lease_seconds <= 3600, "lease_seconds", "must be between 0.2 and 3600")
        _require(0 <= self.revision_gain <= 1, "revision_gain", "must be between 0 and 1")
        # The runtime reads the newest few, and after a roll-back some earlier ones.
        _require(self.kept_epochs >= 100, "kept_epochs", "must be at least 100")
        # The runtime may need records of failed queries for as long as it is down.
        _require(self.ended_days >= 0.01, "ended_days", "must be at least 0.01")
        _require(self.kept_bytes >= 1 << 16, "kept_bytes", "must be at least 65536")
        _require(
            not self.lineage_url
            or self.lineage_url.startswith(("http://", "https://", "file:///")),
            "lineage_url",
            "must begin with http://, https:// or file:///",
        )
        levels = get_args(LogLevel)
        _require(self.log_level in levels, "log_level", "must be debug, info, warning or error")
        _require(
            self.auth is not Auth.OFF or is_loopback(self.host),
            "auth",
            f"must not be off where others can connect: {self.host or 'every address'} is not "
            "a loopback address",
        )
        _require(bool(self.admin_token_file), "admin_token_file", "must not be empty")
        _require(bool(self.tls_cert) == bool(self.tls_key), "tls_key", "goes with tls_cert")
        for origin in self.origins:
            _require(
                _ORIGIN.fullmatch(origin) is not None,
                "allow_origin",
                f"has {origin!r}, which is no origin, such as https://console.example.org:8443",
            )
        _require(self.body_limit >= 1024, "body_limit", "must be at least 1024")
        _require(self.connections >= 16, "connections", "must be at least 16")

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

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins of other sites whose pages may use the service."""
        given = (origin.strip().rstrip("/") for origin in self.allow_origin.split(","))
        return tuple(filter(None, given))

    @staticmethod
    def read(environ: Mapping[str, str], given: Mapping[str, Any]) -> ServiceSettings:
        """The settings of ``environ``, overridden by values of ``given`` other than None.

        Raises:
            SettingsError: a value is malformed or out of range.
        """
        values: dict[str, Any] = {}
        for spec in fields(ServiceSettings):
            if spec.name == "access":
                continue
            text = environ.get(ENV_PREFIX + spec.name.upper())
            if text is not None:
                values[spec.name] = _convert(spec.name, text)
            if given.get(spec.name) is not None:
                values[spec.name] = _convert(spec.name, given[spec.name])
        values["access"] = AccessPolicy.read(environ, given, os.path.realpath)
        return replace(ServiceSettings(), **values)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a service that listens on ``host``.

    >>> [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", "box")]
    [True, True, True, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def own_address(settings: ServiceSettings) -> str:
    """Where a process under ``settings`` listens: no two living processes have the same.

    >>> own_address(ServiceSettings(port=81)).endswith("/127.0.0.1:81")
    True
    """
    return f"{socket.gethostname()}/{settings.host}:{settings.port}"


def _convert(name: str, value: Any) -> Any:
    kind = type(getattr(ServiceSettings(), name))
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

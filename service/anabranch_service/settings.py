"""Settings of the process: the command line overrides the environment, that the defaults."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

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
    """Whether requests need a token; ``AUTO``: only if the service listens beyond loopback."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


def _at_least(options: object, least: float, *names: str) -> None:
    for name in names:
        _require(getattr(options, name) >= least, name, f"must be at least {least}")


def _positive(options: object, *names: str) -> None:
    for name in names:
        _require(getattr(options, name) > 0, name, "must be positive")


def _require(condition: bool, name: str, message: str) -> None:
    if not condition:
        raise SettingsError("bad-setting", message, field=name, remedy="correct the setting")


@dataclass(frozen=True, slots=True)
class PlanningOptions:
    """Settings of planning. Optimizer, objective, parallelism and revision_gain are initial values,
    which ``PATCH /v1/settings`` changes."""

    optimizer: Annotated[Optimizer, "optimizer of the plan"] = Optimizer.CLASH
    objective: Annotated[Objective, "objective of the plan"] = Objective.SECONDS
    parallelism: Annotated[int, "partitions per store"] = 4
    epoch_batches: Annotated[int, "batches per epoch"] = 10
    poll_seconds: Annotated[float, "maximum seconds between looks for reports"] = 0.25
    solve_seconds: Annotated[float, "time limit of one solve"] = 10.0
    series_periods: Annotated[int, "newest periods used by forecasts and revisions"] = PERIODS
    revision_gain: Annotated[float, "least saving of a revision, as a share of the cost"] = 0.1

    def __post_init__(self) -> None:
        _require(1 <= self.parallelism <= 1024, "parallelism", "must be between 1 and 1024")
        _at_least(self, 1, "epoch_batches")
        _positive(self, "poll_seconds", "solve_seconds")
        _require(
            EVIDENCE <= self.series_periods <= INTERIMS_KEPT,
            "series_periods",
            f"must be between {EVIDENCE} and {INTERIMS_KEPT}, as many as Redis keeps",
        )
        _require(0 <= self.revision_gain <= 1, "revision_gain", "must be between 0 and 1")


@dataclass(frozen=True, slots=True)
class LineageOptions:
    """Target of OpenLineage events."""

    lineage_url: Annotated[str, "target of OpenLineage events: http(s):// or file:///path"] = ""
    lineage_token_file: Annotated[str, "file with the bearer token for OpenLineage events"] = ""

    def __post_init__(self) -> None:
        _require(
            not self.lineage_url
            or self.lineage_url.startswith(("http://", "https://", "file:///")),
            "lineage_url",
            "must begin with http://, https:// or file:///",
        )


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """Retention of epochs and of ended queries in Redis."""

    kept_epochs: Annotated[int, "published epochs to keep, with rulesets and statistics"] = 4096
    kept_bytes: Annotated[int, "bytes of rulesets and records of epochs to keep"] = 256 << 20
    ended_days: Annotated[float, "days for which ended queries are shown"] = 7.0

    def __post_init__(self) -> None:
        # The runtime reads the newest few epochs, and after a roll-back some earlier ones.
        _at_least(self, 100, "kept_epochs")
        _at_least(self, 1 << 16, "kept_bytes")
        # The runtime may need records of failed queries for as long as it is down.
        _at_least(self, 0.01, "ended_days")


@dataclass(frozen=True, slots=True)
class WebOptions:
    """Connections of HTTP clients: names, origins, TLS and limits."""

    allow_hostname: Annotated[str, "further host names in requests, comma-separated; *: any"] = ""
    allow_origin: Annotated[str, "origins whose pages may call (CORS), comma-separated"] = ""
    tls_cert: Annotated[str, "certificate chain (PEM) to serve HTTPS with"] = ""
    tls_key: Annotated[str, "private key of the certificate (PEM)"] = ""
    body_limit: Annotated[int, "greatest size of a request body in bytes"] = 16 * 1024 * 1024
    connections: Annotated[int, "maximum number of open connections"] = 512
    request_seconds: Annotated[float, "seconds for a request's header, and for its body"] = 30.0

    def __post_init__(self) -> None:
        _require(bool(self.tls_cert) == bool(self.tls_key), "tls_key", "goes with tls_cert")
        for origin in self.origins:
            _require(
                _ORIGIN.fullmatch(origin) is not None,
                "allow_origin",
                f"has {origin!r}, which is not an origin, such as https://console.example.org:8443",
            )
        _at_least(self, 1024, "body_limit")
        _at_least(self, 16, "connections")
        _positive(self, "request_seconds")

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins of other web sites whose pages may use the service."""
        given = (origin.strip().rstrip("/") for origin in self.allow_origin.split(","))
        return tuple(filter(None, given))


@dataclass(frozen=True, slots=True)
class SizeOptions:
    """Limits of registered streams and queries, since planning time grows faster than linearly
    with queries and their aliases. Aliases of subqueries count."""

    max_aliases: Annotated[int, "maximum number of aliases per query"] = 16
    max_columns: Annotated[int, "maximum number of columns per stream, and of results"] = 1000
    max_streams: Annotated[int, "maximum number of registered streams"] = 1000
    max_queries: Annotated[int, "maximum number of running queries"] = 10_000
    registration_seconds: Annotated[float, "seconds to parse and check a registration"] = 20.0

    def __post_init__(self) -> None:
        _at_least(self, 1, "max_aliases", "max_columns", "max_streams", "max_queries")
        _positive(self, "registration_seconds")


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """SQL over tables of results: limits, and the port of Arrow Flight SQL."""

    sql_seconds: Annotated[float, "time limit of a statement over tables of results"] = 20.0
    sql_memory: Annotated[int, "bytes that such a statement and its tables may take"] = 512 << 20
    flight_port: Annotated[int, "port of Arrow Flight SQL, on the same address; 0: none"] = 0

    def __post_init__(self) -> None:
        _positive(self, "sql_seconds")
        _at_least(self, 64 << 20, "sql_memory")
        _require(0 <= self.flight_port <= 65535, "flight_port", "must be between 0 and 65535")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of the process. Options of the command line are annotated with their help texts;
    some are fields of a group, such as :class:`WebOptions`; :meth:`changed` accepts both.

    Attributes:
        access: sources and sinks that the operator permits (:meth:`AccessPolicy.read`).

    >>> ServiceSettings.read({"ANABRANCH_PORT": "0", "ANABRANCH_MODE": "step"}, {"port": 81}).port
    81
    >>> ServiceSettings().changed(port=81, max_streams=7).sizes.max_streams
    7
    """

    redis_url: Annotated[str, "redis:// or unix:// address of the registry"] = (
        "redis://127.0.0.1:6379/0"
    )
    namespace: Annotated[str, "prefix of all keys; one pipeline per namespace"] = "anabranch"
    host: Annotated[str, "address to listen on"] = "127.0.0.1"
    port: Annotated[int, "port to listen on; 0 picks a free one"] = 8080
    port_file: Annotated[str, "file to write the port to once listening"] = ""
    mode: Annotated[Mode, "live, or step for replay"] = Mode.LIVE
    planning: PlanningOptions = PlanningOptions()
    lease_seconds: Annotated[float, "seconds until another service replaces a dead leader"] = 5.0
    lineage: LineageOptions = LineageOptions()
    retention: RetentionOptions = RetentionOptions()
    log_level: Annotated[LogLevel, "least level to log"] = "info"
    auth: Annotated[Auth, "tokens; auto: required beyond loopback"] = Auth.AUTO
    admin_token_file: Annotated[str, "file of the first admin token, created if missing"] = (
        "anabranch-admin.token"
    )
    web: WebOptions = WebOptions()
    sizes: SizeOptions = SizeOptions()
    tables: SqlOptions = SqlOptions()
    access: AccessPolicy = field(default_factory=AccessPolicy)

    def __post_init__(self) -> None:
        _require(bool(self.namespace), "namespace", "must not be empty")
        _require(0 <= self.port <= 65535, "port", "must be between 0 and 65535")
        # With a shorter lease, a pause of the garbage collector would look like a dead leader.
        _require(0.2 <= self.lease_seconds <= 3600, "lease_seconds", "must be between 0.2 and 3600")
        levels = get_args(LogLevel)
        _require(self.log_level in levels, "log_level", "must be debug, info, warning or error")
        _require(
            self.auth is not Auth.OFF or is_loopback(self.host),
            "auth",
            f"must not be off where others can connect: {self.host or 'every address'} is not "
            "a loopback address",
        )
        _require(bool(self.admin_token_file), "admin_token_file", "must not be empty")

    @property
    def requires_tokens(self) -> bool:
        """Whether a request without a token is refused."""
        if self.auth is Auth.AUTO:
            return not is_loopback(self.host)
        return self.auth is Auth.REQUIRED

    @property
    def hostnames(self) -> tuple[str, ...]:
        """Host names that requests may use besides loopback names and the socket's address."""
        given = (name.strip() for name in self.web.allow_hostname.split(","))
        return (self.host, *filter(None, given))

    def changed(self, **options: Any) -> ServiceSettings:
        """Return a copy with new values for ``options``.

        Raises:
            SettingsError: a value is out of range.
        """
        parts: dict[str, dict[str, Any]] = {}
        for name, value in options.items():
            parts.setdefault(OPTIONS[name].group if name in OPTIONS else "", {})[name] = value
        own = parts.pop("", {})
        groups = {group: replace(getattr(self, group), **found) for group, found in parts.items()}
        return replace(self, **own, **groups)

    @staticmethod
    def read(environ: Mapping[str, str], given: Mapping[str, Any]) -> ServiceSettings:
        """Read environment variables; values of ``given`` (the command line) take precedence.

        Raises:
            SettingsError: a value is malformed or out of range.
        """
        values: dict[str, Any] = {}
        for name in OPTIONS:
            text = environ.get(ENV_PREFIX + name.upper())
            if text is not None:
                values[name] = _convert_option(name, text)
            if given.get(name) is not None:
                values[name] = _convert_option(name, given[name])
        access = AccessPolicy.read(environ, given, os.path.realpath)
        return ServiceSettings().changed(**values, access=access)


@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option, which is also an environment variable.

    Attributes:
        group: field of the settings with the option; empty: the option is itself a field.
    """

    group: str
    kind: Any
    help: str
    default: Any


def _options(part: Any, group: str = "") -> Iterator[tuple[str, Option]]:
    defaults = {f.name: f.default for f in fields(part)}
    for name, hint in get_type_hints(part, include_extras=True).items():
        if get_origin(hint) is Annotated:
            kind, text = get_args(hint)
            yield name, Option(group, kind, text, defaults[name])
        elif is_dataclass(hint) and hint is not AccessPolicy:
            yield from _options(hint, name)


#: Options by name, in the order of the command's help.
OPTIONS = dict(_options(ServiceSettings))


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
    """Return the host name, address and port of this service; unique among living services.

    >>> own_address(ServiceSettings(port=81)).endswith("/127.0.0.1:81")
    True
    """
    return f"{socket.gethostname()}/{settings.host}:{settings.port}"


def _convert_option(name: str, value: Any) -> Any:
    kind = type(OPTIONS[name].default)
    try:
        return kind(value)
    except ValueError:
        choices = f"one of {', '.join(kind)}" if issubclass(kind, StrEnum) else f"of {kind}"
        raise SettingsError(
            "bad-setting",
            f"{value!r} is not a valid value",
            field=name,
            remedy=f"give {'a value ' if 'of <' in choices else ''}{choices}",
        ) from None

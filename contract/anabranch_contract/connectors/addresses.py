"""Addresses in registrations: paths, URIs, brokers, Redis servers, databases.

If a client library parsed an address differently than this module, it could reach a host that is
not allowed. So only plain forms are accepted: no escapes, no second authority, no unknown
parameters.

>>> parse_path("s3a://bucket/x")
PathAddress(scheme='s3a', host='bucket', path='/x')
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from anabranch_contract.connectors.policy import AccessError, AccessPolicy, listed

#: A function that resolves links and ``..`` in a local path.
Resolve = Callable[[str], str]


#: Schemes of file systems other than this machine's.
REMOTE = ("abfs", "abfss", "gs", "hdfs", "s3", "s3a", "wasb", "wasbs")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.S)
_GLOB = re.compile(r"[*?\[\]{}\\]")
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*)|\[[0-9A-Fa-f:.]+\])"
_AUTHORITY = re.compile(rf"(?:([^@/]*)@)?({_HOST})(?::(\d+))?")
_BROKER = re.compile(rf"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?({_HOST}):(\d+)")
_WEB = re.compile(rf"(https?)://({_HOST}(?::\d+)?)(?:/[A-Za-z0-9._~/-]*)?")
_REDIS_PARAMETERS = re.compile(r"(?:(?:db=\d+|protocol=[23])(?:&(?!$)|$))*")
_DATABASE = re.compile(
    rf"jdbc:(postgresql|mysql|mariadb|sqlserver)://((?:[^@/?;]*@)?)({_HOST}(?::\d+)?"
    rf"(?:,{_HOST}(?::\d+)?)*)(?:/([A-Za-z0-9_$.-]*))?([?;].*)?"
)
_POSTGRES = re.compile(
    rf"postgres(?:ql)?://(?:[^@/?#\s]*@)?({_HOST})(?::(\d+))?/[A-Za-z0-9_$.%-]+"
    r"(?:\?(?:(?:sslmode=[a-z-]+|connect_timeout=\d+)(?:&(?!$)|$))+)?"
)
_DERBY = re.compile(r"jdbc:derby:(memory:[A-Za-z0-9_-]+|/[^;:?]*)((?:;[^;]*)*)")
_TLS = ("ssl", "sslmode", "usessl", "requiressl", "encrypt", "trustservercertificate")
_TIMES = ("connecttimeout", "sockettimeout", "logintimeout", "tcpkeepalive")
#: Allowed parameters of database addresses. Others load classes, open files or run statements.
_PARAMETERS = {
    "postgresql": (
        *(*_TLS, *_TIMES, "user", "password", "applicationname", "currentschema"),
        *("targetservertype", "rewritebatchedinserts", "preparethreshold"),
    ),
    "mysql": (
        *(*_TLS, *_TIMES, "user", "password", "characterencoding", "useunicode"),
        *("rewritebatchedstatements", "connectiontimezone", "servertimezone"),
    ),
    "mariadb": (*_TLS, *_TIMES, "user", "password", "rewritebatchedstatements", "timezone"),
    "sqlserver": (
        *(*_TLS, *_TIMES, "user", "password", "database", "databasename", "applicationname"),
        "hostnameincertificate",
    ),
    "derby": ("create", "user", "password"),
}
_PARAMETER = re.compile(r"([A-Za-z_]+)=([A-Za-z0-9_ ./:+$*{}-]*)")


@dataclass(frozen=True, slots=True)
class PathAddress:
    """A path of a source or sink: local (``scheme`` is ``file``, ``host`` empty), or remote."""

    scheme: str
    host: str
    path: str


def parse_path(text: str, field: str = "path") -> PathAddress:
    """Parse a path of a source's or sink's registration.

    Raises:
        AccessError: the path is ambiguous, or its scheme is not supported.
    """
    if not text or not text.isprintable():
        raise AccessError(
            "bad-path", "a path has a control character, or is empty", field=field, remedy="name it"
        )
    match = _SCHEME.fullmatch(text)
    if match is None:
        if text.startswith("//"):
            text = "/" + text.lstrip("/")
        return PathAddress("file", "", text)
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        local = "/" + rest[2:].lstrip("/") if rest.startswith("///") else rest
        if not local.startswith("/") or local.startswith("//"):
            raise AccessError(
                "bad-path",
                "this is not a path of this machine",
                field=field,
                remedy="file:///a/path",
            )
        return PathAddress("file", "", local)
    if scheme not in REMOTE:
        raise AccessError(
            "bad-path",
            f"paths of scheme {scheme!r} are not supported",
            field=field,
            remedy=f"give a path of this machine, or one of {', '.join(REMOTE)}",
        )
    authority, _, path = rest.removeprefix("//").partition("/")
    found = _AUTHORITY.fullmatch(authority) if rest.startswith("//") else None
    # The text before @ is a container in abfs addresses, in others a user name and a secret.
    if found is None or (found[1] is not None and (":" in found[1] or scheme[:2] not in "abwa")):
        raise AccessError(
            "bad-path",
            "the address names no host"
            if found is None
            else "the address has a name or a secret before its host",
            field=field,
            remedy=f"{scheme}://host/path",
        )
    if _GLOB.search(path) or ".." in path.split("/") or "%" in path:
        raise AccessError(
            "bad-path",
            "an address of another system has .., % or a pattern in it",
            field=field,
            remedy="name one directory",
        )
    return PathAddress(scheme, found[2] + (f":{found[3]}" if found[3] else ""), "/" + path)


def check_path(
    text: str, policy: AccessPolicy, resolve: Resolve, field: str, *, write: bool = False
) -> str:
    """Check that the policy allows a path of a registration; return it, resolved if it is local.

    Raises:
        AccessError: the path is outside the allowed directories (whether or not it exists), or its
            host is not allowed.
    """
    place = parse_path(text, field)
    if place.scheme != "file":
        host, port = split_host(place.host)
        check_host(host, port, policy, field)
        return text
    found = resolve(place.path)
    if not policy.permits_path(found, write=write):
        raise AccessError(
            "path-not-allowed",
            "the path is outside of the directories that "
            + ("may be written to" if write else "may be read"),
            field=field,
            remedy=f"allowed are {listed(policy.paths)}"
            + (", except for the pipeline's own files"
               if policy.reserved or (write and policy.read_only) else "")
            + "; --allow-path (ANABRANCH_ALLOW_PATH) allows more",
        )  # fmt: skip
    return found


def check_full(text: str, field: str) -> None:
    """Refuse a local path that is not absolute.

    Raises:
        AccessError: ``bad-path``.

    >>> check_full("/data/x", "path"), check_full("s3a://bucket/x", "path")
    (None, None)
    """
    place = parse_path(text, field)
    if place.scheme == "file" and not place.path.startswith("/"):
        expanded = place.path.startswith(("~", "$"))
        raise AccessError(
            "bad-path",
            f"the {place.path[0]} in {text[:100]!r} is not expanded"
            if expanded
            else f"{text[:100]!r} is relative, and the runtime's directory is not yours",
            field=field,
            remedy="give the path in full: /a/path",
        )


def check_no_pattern(text: str, field: str) -> None:
    """Refuse a path that Spark would expand as a glob pattern.

    Raises:
        AccessError: ``bad-path``.
    """
    if _GLOB.search(text):
        raise AccessError(
            "bad-path",
            "the path has a character that stands for others",
            field=field,
            remedy="name a directory, and choose files in it by the option pathGlobFilter",
        )


def check_host(
    host: str, port: int | None, policy: AccessPolicy, field: str, *, by_list: bool = False
) -> None:
    """Reject a host that the policy forbids; with ``by_list`` also unlisted ports of this machine.

    Raises:
        AccessError: ``host-not-allowed``.
    """
    if not policy.permits_host(host, port, listed=by_list):
        where = host if port is None else f"{host}:{port}"
        raise AccessError(
            "host-not-allowed",
            f"connections to {where} are not allowed",
            field=field,
            remedy=f"allowed are {listed((*(() if by_list else ('localhost',)), *policy.hosts))};"
            " --allow-host"
            " (ANABRANCH_ALLOW_HOST) allows more",
        )


def split_host(text: str) -> tuple[str, int | None]:
    """Parse ``host``, ``host:port`` or ``[address]:port`` into host and port."""
    head, colon, tail = text.rpartition(":")
    if colon and tail.isdigit() and (":" not in head or head.startswith("[")):
        return head.strip("[]"), int(tail)
    return text.strip("[]"), None


def check_brokers(text: str, policy: AccessPolicy, field: str) -> None:
    """Refuse Kafka brokers that are not allowed.

    Raises:
        AccessError: a broker is not allowed, or not of the form ``host:port``.
    """
    for broker in text.split(","):
        match = _BROKER.fullmatch(broker.strip())
        if match is None:
            raise AccessError(
                "bad-address",
                f"{broker.strip()[:100]!r} is not a broker",
                field=field,
                remedy="give host:port, separated by commas",
            )
        check_host(match[1], int(match[2]), policy, field)


def check_redis(text: str, policy: AccessPolicy, resolve: Resolve, field: str) -> None:
    """Refuse the address of a Redis server that is not allowed. A local server must be the
    pipeline's own or listed, since failing connections would reveal which ports are open.

    Raises:
        AccessError: the server is not allowed, or the address has parameters that open files.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts = urlsplit("")
        port = None
    plain = text.isprintable() and "\\" not in text and " " not in text
    if not plain or _REDIS_PARAMETERS.fullmatch(parts.query) is None or parts.fragment:
        raise AccessError(
            "bad-address",
            "this is not a plain address of a Redis server",
            field=field,
            remedy="give redis://host:port/db, without parameters other than db",
        )
    if parts.scheme == "unix":
        check_path(parts.path, policy, resolve, field)
    elif parts.scheme in ("redis", "rediss") and parts.hostname and "%" not in parts.netloc:
        check_host(parts.hostname, port or 6379, policy, field, by_list=True)
    else:
        raise AccessError(
            "bad-address",
            "this is not an address of a Redis server",
            field=field,
            remedy="give redis://host:port/db, or leave it out for the pipeline's own",
        )


def check_web(text: str, policy: AccessPolicy, field: str) -> None:
    """Refuse a web server's address that is not allowed; servers of this machine must be listed.

    Raises:
        AccessError: the server is not allowed, or the address is not of a plain form.
    """
    match = _WEB.fullmatch(text)
    if match is None:
        raise AccessError(
            "bad-address",
            "this is not a plain address of a server",
            field=field,
            remedy="give https://host:port, without user, password and parameters",
        )
    host, port = split_host(match[2])
    check_host(host, port or (443 if match[1] == "https" else 80), policy, field, by_list=True)


def check_postgres(text: str, policy: AccessPolicy, field: str) -> None:
    """Refuse the address of a PostgreSQL server that is not allowed.

    Raises:
        AccessError: the server is not allowed, or the form or parameters of the address are not.
    """
    match = _POSTGRES.fullmatch(text)
    if match is None:
        raise AccessError(
            "bad-address",
            "this is not a plain address of a PostgreSQL database",
            field=field,
            remedy="give postgresql://user@host:5432/database, with no parameters but sslmode and"
            " connect_timeout",
        )
    check_host(match[1].strip("[]"), int(match[2] or 5432), policy, field)


def check_database(text: str, policy: AccessPolicy, resolve: Resolve, field: str) -> None:
    """Refuse the address of a database that is not allowed.

    Raises:
        AccessError: the host or file is not allowed, the form is unknown, or a parameter is not in
            ``_PARAMETERS``.
    """
    match, derby = _DATABASE.fullmatch(text), _DERBY.fullmatch(text)
    if derby is not None:
        kind, parameters = "derby", derby[2]
        if not derby[1].startswith("memory:"):
            check_path(derby[1], policy, resolve, field, write=True)
    elif match is not None:
        kind, parameters = match[1], match[5] or ""
        for server in match[3].split(","):
            check_host(*split_host(server), policy, field)
    else:
        raise AccessError(
            "bad-address",
            "this form of a database's address is not supported",
            field=field,
            remedy=f"jdbc:NAME://host:port/database, NAME one of {', '.join(_PARAMETERS)}",
        )
    for parameter in re.split("[&;?]", parameters):
        found = _PARAMETER.fullmatch(parameter)
        if parameter and (found is None or found[1].lower() not in _PARAMETERS[kind]):
            raise AccessError(
                "bad-address",
                f"the address has a parameter {parameter.partition('=')[0][:60]!r} that is not"
                " allowed, or a value that is not plain",
                field=field,
                remedy="it may have " + ", ".join(_PARAMETERS[kind]),
            )


#: Scheme and ``user:password@`` of a URL. The scheme's length is bounded, so that a search in a
#: long text does not take quadratic time.
_CREDENTIALS = re.compile(r"([a-z][a-z0-9+.-]{0,30}://)([^\s/@:'\"]*):[^\s/@'\"]+@", re.IGNORECASE)


def masked(text: str) -> str:
    """``text`` with the passwords of the URLs in it replaced by ``***``.

    >>> masked("Redis at redis://me:secret@host:6379/0 and redis://:x@[::1]/1, http://host/a@b:c")
    'Redis at redis://me:***@host:6379/0 and redis://:***@[::1]/1, http://host/a@b:c'
    """
    return _CREDENTIALS.sub(r"\1\2:***@", text)

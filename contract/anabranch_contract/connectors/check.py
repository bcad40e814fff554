"""Checks of a source or a sink against the operator's access policy.

The service checks each registration. The runtime checks again when it opens a source or writes to a
sink, because the policy may be newer than the registration, and links may have changed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from anabranch_contract.connectors.addresses import (
    Resolve,
    check_brokers,
    check_database,
    check_full,
    check_no_pattern,
    check_path,
    check_postgres,
    check_redis,
    check_web,
    parse_path,
)
from anabranch_contract.connectors.lake.options import DELTA
from anabranch_contract.connectors.options import (
    CODECS,
    FILE_OPTIONS,
    FILE_SINK_OPTIONS,
    SOURCE_OPTIONS,
    TABLE_SINK_OPTIONS,
    option_fits,
)
from anabranch_contract.connectors.policy import SINKS, SOURCES, AccessError, AccessPolicy
from anabranch_contract.connectors.postgres.options import POSTGRES
from anabranch_contract.connectors.secrets import REFERENCE, check_secrets
from anabranch_contract.connectors.webhook.options import WEBHOOK

#: Options of Spark's formats that anabranch interprets itself.
_OWN_SOURCE, _OWN_SINK = ("payload", "schema", "column.*"), ("anabranch.*",)
#: Maximum number of characters of one option, and maximum number of options of a registration.
MOST_TEXT, MOST_OPTIONS = 20_000, 1_200
#: Maximum number of characters of all options of a registration, since parsing takes 10 us each.
MOST_ALL_TEXT = 200_000
#: Formats of sources whose path is a file or directory of this machine.
_LOCAL = ("recorded", "files", DELTA)
_DANGEROUS = re.compile(r"class|callback|interceptor|provider|factory|loader|init|script", re.I)
_IDENTIFIER = r'(?:[A-Za-z_][A-Za-z0-9_$]*|"[A-Za-z0-9_$ -]+")'
_TABLE = re.compile(rf"{_IDENTIFIER}(?:\.{_IDENTIFIER}){{0,2}}")
#: Pattern of a column and its type. Quantifiers are possessive, since backtracking over spaces
#: could take hours; but not in groups, whose possessive quantifiers are wrong in Python 3.11.2.
_COLUMN_TYPE = re.compile(
    rf"\s*+{_IDENTIFIER}\s++[A-Za-z]++(?: ++[A-Za-z]++)*\s*+"
    r"(?:\(\s*+\d++\s*+(?:,\s*+\d++\s*+)?\)\s*+)?"
)
_DRIVERS = frozenset({
    "org.postgresql.Driver", "com.mysql.cj.jdbc.Driver", "org.mariadb.jdbc.Driver",
    "com.microsoft.sqlserver.jdbc.SQLServerDriver", "org.apache.derby.jdbc.EmbeddedDriver",
    "org.apache.derby.iapi.jdbc.AutoloadedDriver",
})  # fmt: skip


def check_source_access(
    format: str,
    path: str | None,
    options: Mapping[str, str],
    policy: AccessPolicy,
    resolve: Resolve,
) -> str | None:
    """Reject a source whose path or options the policy forbids; return the resolved path, if any.

    Args:
        format, path, options: as registered.
        policy: the allowed formats, directories and hosts.
        resolve: function that follows links and ``..`` of a local path.

    Raises:
        AccessError: names the option, the allowed values, and the flag that would allow more.
    """
    _check_format("source", format, SOURCES, policy)
    _check_sizes("source", options)
    check_secrets("source", format, path, options)
    if format not in ("redis-stream", "files"):
        _check_names("source", format, options, SOURCE_OPTIONS.get(format), _OWN_SOURCE)
    _check_values("source", format, options, policy, resolve)
    if path is None:
        return None
    check_full(path, "source.path")
    found = check_path(path, policy, resolve, "source.path")
    if format in _LOCAL and parse_path(path).scheme != "file":
        raise _bad("source.path", "this is not a path of this machine", "give a directory's path")
    if format not in _LOCAL:
        check_no_pattern(path, "source.path")
    return found


def check_sink_access(
    format: str,
    path: str | None,
    options: Mapping[str, str],
    policy: AccessPolicy,
    resolve: Resolve,
) -> str | None:
    """Reject a sink whose path or options the policy forbids; return the resolved path, if any.
    Arguments and errors are as for :func:`check_source_access`."""
    _check_format("sink", format, SINKS, policy)
    _check_sizes("sink", options)
    check_secrets("sink", format, path, options)
    known = {**FILE_SINK_OPTIONS, **TABLE_SINK_OPTIONS}.get(format)
    if format not in ("redis-stream", "count", WEBHOOK):
        _check_names("sink", format, options, known, _OWN_SINK)
    _check_values("sink", format, options, policy, resolve)
    if path is None:
        return None
    check_no_pattern(path, "sink.path")
    return check_path(path, policy, resolve, "sink.path", write=True)


def _check_format(kind: str, format: str, known: Collection[str], policy: AccessPolicy) -> None:
    if format not in known and format not in policy.formats:
        raise AccessError(
            "format-not-allowed",
            f"{kind}s of format {format!r} are not allowed",
            field=f"{kind}.format",
            remedy=f"allowed are {', '.join(sorted({*known, *policy.formats}))}; --allow-format"
            " (ANABRANCH_ALLOW_FORMAT) allows more",
        )


def _check_sizes(kind: str, options: Mapping[str, str]) -> None:
    if len(options) > MOST_OPTIONS:
        raise AccessError(
            "too-large",
            f"more than {MOST_OPTIONS} options",
            field=f"{kind}.options",
            remedy="fewer",
        )
    if sum(len(name) + len(text) for name, text in options.items()) > MOST_ALL_TEXT:
        raise AccessError(
            "too-large",
            f"all options together have more than {MOST_ALL_TEXT} characters",
            field=f"{kind}.options",
            remedy="shorten them",
        )
    seen: set[str] = set()
    for name, text in options.items():
        field = f"{kind}.options.{name[:100]}"
        if len(name) + len(text) > MOST_TEXT:
            raise AccessError(
                "too-large", f"more than {MOST_TEXT} characters", field=field, remedy="shorten it"
            )
        if not name.startswith("column.") and name.lower() in seen:
            raise AccessError(
                "bad-option",
                f"option {name!r} is given more than once (case does not matter)",
                field=field,
                remedy="give it once",
            )
        seen.add(name.lower())


def _check_names(
    kind: str,
    format: str,
    options: Mapping[str, str],
    known: tuple[str, ...] | None,
    own: tuple[str, ...],
) -> None:
    for name in options:
        # anabranch's own options are case-sensitive: other spellings would be passed to Spark.
        if any(name == p or (p[-1] == "*" and name.startswith(p[:-1])) for p in own):
            continue
        allowed = (
            _DANGEROUS.search(name) is None and name.lower() != "path"
            if known is None
            else any(option_fits(name, pattern) for pattern in known)
        )
        if not allowed:
            raise AccessError(
                "unknown-option" if kind == "source" else "unknown-sink-option",
                f"the {kind} {format} has no option {name!r} that may be given",
                field=f"{kind}.options.{name}",
                remedy=f"it has {', '.join((*(known or ()), *own))}"
                if known is not None
                else "options that name classes or paths can't be given",
            )


def _check_values(
    kind: str, format: str, options: Mapping[str, str], policy: AccessPolicy, resolve: Resolve
) -> None:
    known = format in SOURCES | SINKS | {"jdbc"}
    for name, text in options.items():
        field, lowered = f"{kind}.options.{name}", name.lower()
        # An address given as ``${VARIABLE}`` was set by the operator, and needs no check.
        if REFERENCE.fullmatch(text) or name.startswith("column.") or name == "schema":
            continue
        if lowered == "kafka.bootstrap.servers" or (format == "kafka" and lowered == "brokers"):
            check_brokers(text, policy, field)
        elif (format, lowered) in (("kafka", "registry"), (WEBHOOK, "url")):
            check_web(text, policy, field)
        elif format == "redis-stream" and lowered == "url":
            check_redis(REFERENCE.sub("secret", text), policy, resolve, field)
        elif format == POSTGRES and lowered == "url":
            check_postgres(REFERENCE.sub("secret", text), policy, field)
        elif format == "jdbc":
            _check_jdbc(lowered, REFERENCE.sub("secret", text), policy, resolve, field)
        elif lowered in FILE_OPTIONS:
            check_path(text, policy, resolve, field)
        elif lowered == "compression" and text.lower() not in CODECS:
            raise _bad(field, f"{text[:60]!r} is not a codec", f"give one of {', '.join(CODECS)}")
        elif not known and ("://" in text or text.startswith(("/", "file:"))):
            check_path(text, policy, resolve, field, write=kind == "sink")


def _check_jdbc(name: str, text: str, policy: AccessPolicy, resolve: Resolve, field: str) -> None:
    if name == "url":
        check_database(text, policy, resolve, field)
    elif name == "dbtable" and _TABLE.fullmatch(text) is None:
        raise _bad(field, "this is not a name of a table", "give table, or schema.table")
    elif name == "driver" and text not in _DRIVERS:
        raise _bad(field, "this driver is not known", f"leave it out, or give {_one(_DRIVERS)}")
    elif name == "createtablecolumntypes" and not _are_columns(text):
        raise _bad(field, "this is not a list of columns and types", "write e.g. name VARCHAR(64)")
    elif name == "anabranch.batchcolumn" and re.fullmatch(r"[A-Za-z_]\w*", text, re.A) is None:
        raise _bad(field, "this is not a plain name of a column", "use letters, digits and _")


def _are_columns(text: str) -> bool:
    """Whether a source's option is a comma-separated list of columns with their types."""
    at = 0
    while found := _COLUMN_TYPE.match(text, at):
        at = found.end()
        if at == len(text):
            return True
        if text[at] != ",":
            return False
        at += 1
    return False


def _one(items: Collection[str]) -> str:
    return " or ".join(sorted(items))


def _bad(field: str, message: str, remedy: str) -> AccessError:
    return AccessError("bad-option", message, field=field, remedy=remedy)

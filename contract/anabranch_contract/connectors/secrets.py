"""Secrets in registrations: given by reference only, in options for secrets only, never displayed.

A reference, ``${ANABRANCH_SINK_NAME}`` or ``${ANABRANCH_SOURCE_NAME}``, names a variable of the
runtime's environment. It may be used in the options accepted by ``takes_secret``. In an address it
may only replace the whole address, or its password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from anabranch_contract.connectors.policy import AccessError

REFERENCE = re.compile(r"\$\{(ANABRANCH_(?:SINK|SOURCE)_[A-Z0-9_]+)\}")
#: Prefixes of the environment variables with secrets.
PREFIXES = ("ANABRANCH_SINK_", "ANABRANCH_SOURCE_")
MASK = "***"

_SECRET_NAME = re.compile(
    r"passw|passwd|pwd|secret|token|credential|jaas|access\.?key|private[._]?key|keystore\.key"
    r"|api\.?key|sas\.?key|account\.?key",
    re.I,
)
#: Pattern of a secret ``name=value`` in an address or connection string, up to a separator.
_IN_TEXT = re.compile(
    r"((?:password|passwd|passphrase|pwd|user_?info|secret|token|access_?key(?:_?id)?|api_?key|sig)"
    r"\s*=\s*)(\"[^\"]*\"|[^&;,\s]*)",
    re.I,
)
#: Pattern of ``user:password@`` after ``//``, up to the last ``@`` before the path.
_USERINFO = re.compile(r"(//[^/?#@:]*:)([^/?#]*)(@)")
#: Pattern of ``user@`` in a Redis URL, which may be a password whose colon was forgotten.
_USER_ONLY = re.compile(r"(\brediss?://)([^/?#@:]+)(@)", re.I)
_OPTIONS = {
    "kafka": frozenset({
        "kafka.sasl.jaas.config", "kafka.ssl.keystore.password", "kafka.ssl.key.password",
        "kafka.ssl.truststore.password", "password", "private_key", "private_key_password",
        "registry_password",
    }),
    "jdbc": frozenset({"url", "user", "password"}),
    "redis-stream": frozenset({"url"}),
    "postgres": frozenset({"url", "password"}),
    "webhook": frozenset({"url", "secret"}),
}  # fmt: skip
#: Formats whose options are all known, and never secret.
_WITHOUT = frozenset({
    "count", "recorded", "files", "rate", "rate-micro-batch",
    "parquet", "json", "csv", "orc", "text", "xml", "avro", "delta", "iceberg",
})  # fmt: skip
_JAAS = re.compile(
    r"org\.apache\.kafka\.common\.security\.(?:plain\.PlainLoginModule|scram\.ScramLoginModule)"
    r"\s+required\s+username=\"[^\"\\$]*\"\s+password=\"\$\{ANABRANCH_(?:SINK|SOURCE)_[A-Z0-9_]+\}\"\s*;"
)


def takes_secret(format: str, option: str) -> bool:
    """Whether ``option`` of a source or sink of ``format`` may contain references to secrets."""
    if format in _OPTIONS:
        return option.lower() in _OPTIONS[format]
    return format not in _WITHOUT and _SECRET_NAME.search(option) is not None


def check_secrets(kind: str, format: str, path: str | None, options: Mapping[str, str]) -> None:
    """Refuse plain-text secrets, and references in options that take no secrets.

    Args:
        kind: ``source`` or ``sink``: the prefix of the variables that references may name.

    Raises:
        AccessError: naming the option, never its value.
    """
    remedy = f"write ${{ANABRANCH_{kind.upper()}_<NAME>}} and set that variable for the runtime"
    if path is not None and ("${" in path or is_secret("", path)):
        raise AccessError(
            f"secret-in-{kind}", "the path holds a secret", field=f"{kind}.path", remedy=remedy
        )
    _check_references(kind, format, options)
    for name, value in options.items():
        # The planner parses expressions of columns, and passes their literals to Spark escaped.
        if not _is_literal(name) and is_secret(name, value):
            raise AccessError(
                f"secret-in-{kind}",
                f"option {name!r} holds a secret that everybody who can list registrations could"
                " read",
                field=f"{kind}.options.{name}",
                remedy=remedy,
            )


def _is_literal(option: str) -> bool:
    return option.startswith("column.") or option == "schema"


def _check_references(kind: str, format: str, options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if "${" in value and not _is_literal(name):
            field = f"{kind}.options.{name}"
            _check_reference(f"ANABRANCH_{kind.upper()}_", format, name, value, field)


def _check_reference(prefix: str, format: str, name: str, value: str, field: str) -> None:
    if "${" in REFERENCE.sub("", value) or not all(
        found.startswith(prefix) for found in REFERENCE.findall(value)
    ):
        raise AccessError(
            "bad-reference",
            f"option {name!r} has ${{ without the name of a variable that the runtime may read",
            field=field,
            remedy=f"write ${{{prefix}<NAME>}}, capitals, digits and underscores",
        )
    if not takes_secret(format, name):
        raise AccessError(
            "misplaced-secret",
            f"option {name!r} is not for secrets: its value is written into results or messages",
            field=field,
            remedy="options for secrets of this format: "
            + (", ".join(sorted(_OPTIONS.get(format, ()))) or "none"),
        )
    whole = REFERENCE.fullmatch(value) is not None
    if name.lower() == "url" and not whole and not _password_only(value):
        raise AccessError(
            "misplaced-secret",
            "a reference may be the whole address, or its password",
            field=field,
            remedy="write scheme://user:${...}@host:port/path",
        )
    if name.lower() == "kafka.sasl.jaas.config" and not whole and _JAAS.fullmatch(value) is None:
        raise AccessError(
            "misplaced-secret",
            "this login configuration is not supported",
            field=field,
            remedy="give PlainLoginModule or ScramLoginModule with a username, and a reference as"
            " its password, or all of it as a reference",
        )


def _password_only(url: str) -> bool:
    """Whether references to secrets in an address only replace its password."""
    rest = _USERINFO.sub(lambda m: m[1] + m[3] if REFERENCE.fullmatch(m[2]) else m[0], url)
    rest = _IN_TEXT.sub(lambda m: m[1] if REFERENCE.fullmatch(m[2]) else m[0], rest)
    return "${" not in rest


def is_secret(name: str, value: str) -> bool:
    """Whether an option seems to contain a secret in plain text.

    >>> [is_secret("url", v) for v in ("redis://:pw@h", "redis://h:1", "jdbc:x:y;password=p")]
    [True, False, True]
    """
    if _SECRET_NAME.search(name):
        return value != "" and REFERENCE.search(value) is None
    return masked_text(value) != value


def masked_text(text: str) -> str:
    """``text`` with the passwords in its addresses and connection strings masked.

    >>> masked_text("jdbc:postgresql://u:p@h/x?password=q&ssl=true"), masked_text("redis://p@h")
    ('jdbc:postgresql://u:***@h/x?password=***&ssl=true', 'redis://***@h')
    """

    def hidden(secret: str) -> str:
        return secret if not secret or REFERENCE.fullmatch(secret) else MASK

    for pattern in (_USERINFO, _USER_ONLY):
        text = pattern.sub(lambda m: m[1] + hidden(m[2]) + m[3], text)
    return _IN_TEXT.sub(lambda m: m[1] + hidden(m[2]), text)


def masked_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with plain-text secrets masked, for display.

    Expressions of columns are not masked: ``column.token`` defines a column named ``token``.
    """
    return {name: _masked_option(name, value) for name, value in options.items()}


def _masked_option(name: str, value: str) -> str:
    if _is_literal(name):
        return masked_text(value)
    return MASK if _SECRET_NAME.search(name) and is_secret(name, value) else masked_text(value)


def resolved(
    kind: str, format: str, options: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the options with values of environment variables in place of references to secrets;
    references within these values stay. Secrets in plain text are allowed, since the address of the
    pipeline's own Redis server may have a password.

    Raises:
        AccessError: a variable is not set, or an option that takes no secret has a reference.
    """
    _check_references(kind, format, options)

    def value(match: re.Match[str]) -> str:
        found = environ.get(match[1])
        if found is None:
            raise AccessError(
                "no-secret",
                f"the variable {match[1]} is not set",
                field=match[1],
                remedy="set it in the runtime's environment",
            )
        return found

    return {name: _replaced(name, text, value) for name, text in options.items()}


def _replaced(name: str, text: str, value: object) -> str:
    if _is_literal(name):
        return text
    return REFERENCE.sub(value, text)  # type: ignore[call-overload, no-any-return]


def without_secrets(message: str, environ: Mapping[str, str]) -> str:
    """Return ``message`` with secret variables' values and apparent passwords masked."""
    for name, secret in environ.items():
        if name.startswith(PREFIXES) and secret:
            for shown in {secret, quote(secret), quote(secret, safe="")}:
                message = message.replace(shown, MASK)
    return masked_text(message)

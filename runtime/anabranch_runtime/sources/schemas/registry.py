"""Schemas of a schema registry, by the ids in messages.

An id's schema never changes, so a process fetches it at most once an hour. While a registry does
not answer, streams that use it wait: no message is judged invalid without its schema.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from anabranch_contract.connectors.kafka_sources import KAFKA
from anabranch_contract.connectors.schemas.registered import Get
from anabranch_contract.connectors.secrets import resolved
from anabranch_runtime.errors import SourceError

#: Seconds to wait for an answer; seconds for which a schema, and its absence, are cached.
PATIENCE, KNOWN, UNKNOWN = 5.0, 3600.0, 10.0
#: Maximum bytes of an answer, and maximum number of cached schemas.
_MOST_BYTES, _MOST = 4 << 20, 10_000
#: Registry's error codes for a schema, subject or version that it does not have.
_ABSENT = frozenset({40401, 40402, 40403})
_T = TypeVar("_T")
#: Parser of a registry's answer; its second argument fetches further answers. None: other form.
Parse = Callable[[Mapping[str, Any], Get], Any]
#: (parser, address, id) -> time until which it is cached, and the schema (None: it is missing).
_known: dict[tuple[Parse, str, int], tuple[float, Any]] = {}


class _NoRedirect(HTTPRedirectHandler):
    """Handler that follows no redirection, since only the registry's own host is permitted."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, which turns a registry's redirection into an error."""


_OPENER = build_opener(ProxyHandler({}), _NoRedirect)


def schemas_of(
    options: Mapping[str, str],
    ids: Iterable[int],
    parse: Callable[[Mapping[str, Any], Get], _T | None],
) -> dict[int, _T | None]:
    """Return the schemas of ``ids``; None for an id if the registry has no schema of this form.

    Args:
        options: options of a source: ``registry``, and its login.
        ids: ids of schemas.
        parse: parser of a schema's form.

    Raises:
        AccessError: a variable of a secret is not set.
        SourceError: the registry does not answer.
    """
    return {number: _schema(options, number, parse) for number in ids}


def _schema(options: Mapping[str, str], number: int, parse: Parse) -> Any:
    key, now = (parse, options["registry"], number), time.monotonic()
    until, schema = _known.get(key, (0.0, None))
    if now < until:
        return schema
    answer = _get(options, f"schemas/ids/{number}")
    schema = None if answer is None else parse(answer, partial(_get, options))
    if len(_known) >= _MOST:
        _known.clear()
    _known[key] = now + (UNKNOWN if schema is None else KNOWN), schema
    return schema


def _get(options: Mapping[str, str], path: str) -> dict[str, Any] | None:
    """Return the registry's answer; None if it does not have the schema."""
    options = resolved("source", KAFKA, options, os.environ)
    address = options["registry"].rstrip("/")
    request = Request(f"{address}/{path}", headers={"Accept": "application/json"})
    if "registry_user" in options:
        login = f"{options['registry_user']}:{options['registry_password']}".encode()
        request.add_header("Authorization", f"Basic {base64.b64encode(login).decode()}")
    try:
        with _OPENER.open(request, timeout=PATIENCE) as answer:
            text = answer.read(_MOST_BYTES)
    except HTTPError as cause:
        with cause:
            if cause.code == 404 and _code(cause.read(_MOST_BYTES)) in _ABSENT:
                return None
        raise _no_answer(address, f"status {cause.code}") from cause
    except OSError as cause:
        raise _no_answer(address, str(getattr(cause, "reason", cause))) from cause
    try:
        found = json.loads(text)
        found["schema"]
    except (ValueError, TypeError, KeyError):
        raise _no_answer(address, "the answer is not a schema") from None
    return dict(found)


def _code(text: bytes) -> int:
    try:
        return int(json.loads(text)["error_code"])
    except (ValueError, TypeError, KeyError):
        return 0


def _no_answer(address: str, why: str) -> SourceError:
    return SourceError(
        "no-server",
        f"schema registry at {address}: {why}",
        field="registry",
        remedy="check that the registry runs, and the options registry, registry_user and"
        " registry_password",
    )

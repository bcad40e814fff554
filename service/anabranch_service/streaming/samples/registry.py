"""Answers of a schema registry about the messages of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from anabranch_service.streaming.samples.sample import BYTES, SECONDS, Unreadable

#: Number of bytes in front of a message that name its schema: 0 and the id.
PREFIX = 5


def id_of(message: bytes) -> int | None:
    """Return the schema id at the beginning of a message; None if there is none."""
    named = len(message) >= PREFIX and message[0] == 0
    return int.from_bytes(message[1:PREFIX]) if named else None


def ask_registry(options: Mapping[str, str], path: str) -> Mapping[str, Any] | None:
    """Return the registry's answer for ``path``; None if there is nothing under it. Redirections
    are not followed, since only the registry's own host is allowed.

    Args:
        options: options of the source, with secrets in place of references to them.
        path: path of the request.

    Raises:
        Unreadable: the registry does not answer.
    """
    address = options["registry"].rstrip("/")
    user = options.get("registry_user")
    login = None if user is None else (user, options["registry_password"])
    why = "the answer is not a schema"
    try:
        with httpx.Client(timeout=SECONDS, trust_env=False, auth=login) as client:
            answer = client.get(f"{address}/{path}")
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            why = f"status {answer.status_code}"
        found = answer.json() if answer.status_code == 200 and len(answer.content) < BYTES else 0
        if isinstance(found, dict) and "schema" in found:
            return found
    except (httpx.HTTPError, ValueError) as cause:
        why = str(cause) or type(cause).__name__
    raise Unreadable(
        "no-server",
        f"schema registry at {address}: {why}",
        field="source.options.registry",
        remedy="check that the registry runs, and the options registry, registry_user and"
        " registry_password",
    )

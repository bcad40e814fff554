"""Texts and documents without their secrets.

Three nets, each for what the others miss: the values of secrets that are known here (variables,
files of the pipeline's folder), wherever they stand; options, by their names; and what looks like a
secret in any text: passwords in addresses and connection strings, tokens, ``Authorization``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from anabranch_contract.connectors.secrets import MASK, PREFIXES, masked_options, masked_text

#: Shorter values would be found in words that are no secrets.
_SHORTEST = 6
_TOKEN = re.compile(r"\banb_[0-9a-f]{12}_[0-9a-f]{16,}")
_AUTHORIZATION = re.compile(r"((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
#: A quoted name of a secret, and its quoted value, as documents in logs have them.
_QUOTED = re.compile(
    r"""((\\?["'])[\w.-]*(?:passw|pwd|secret|credential|api_?key|access_?key)[\w.-]*\2\s*:\s*)"""
    r"""(\\?["']).*?\3""",
    re.IGNORECASE,
)
#: Files below a pipeline's folder that hold nothing but a secret.
SECRET_FILES = ("admin.token", "redis/password")
#: Variables whose value is a secret, and one that is an address with one.
_VARIABLES, _ADDRESS = ("ANABRANCH_TOKEN",), "ANABRANCH_REDIS_URL"


def known_secrets(environ: Mapping[str, str], folder: Path) -> frozenset[str]:
    """The secrets that this machine knows: of the environment, and of a pipeline's folder."""
    found = [
        value for name, value in environ.items() if name in _VARIABLES or name.startswith(PREFIXES)
    ]
    found.append(urlsplit(environ.get(_ADDRESS, "")).password or "")
    for name in SECRET_FILES:
        try:
            found.append((folder / name).read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError):
            continue
    return frozenset(filter(None, found))


class Redactor:
    """Takes secrets out of texts and documents."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """``secrets``: values that are masked wherever they stand, as they are or as in a URL."""
        known = {form for s in secrets for form in (s, unquote(s), quote(s), quote(s, safe=""))}
        # The longest first: one may be a part of another.
        self._known = sorted((s for s in known if len(s) >= _SHORTEST), key=len, reverse=True)

    def text(self, text: str) -> str:
        """A text, line by line.

        >>> Redactor(["hunter22"]).text('redis://me:pw@h {"db.password": "x y"} hunter22')
        'redis://me:***@h {"db.password": ***} ***'
        >>> Redactor().text("Authorization: Bearer abcdefgh and jdbc:x://h?password=p&ssl=true")
        'Authorization: Bearer *** and jdbc:x://h?password=***&ssl=true'
        """
        return "\n".join(map(self._line, text.split("\n")))

    def document(self, document: Any) -> Any:
        """A document: its texts, keys included, and its options by their names."""
        if isinstance(document, str):
            return self.text(document)
        if isinstance(document, Mapping):
            return {
                self.text(str(key)): self.document(
                    self._options(value) if key == "options" else value
                )
                for key, value in document.items()
            }
        if isinstance(document, list):
            return [self.document(one) for one in document]
        return document

    def _options(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return masked_options({str(name): str(text) for name, text in value.items()})

    def _line(self, line: str) -> str:
        for secret in self._known:
            line = line.replace(secret, MASK)
        line = _QUOTED.sub(lambda m: m[1] + MASK, line)
        line = _AUTHORIZATION.sub(lambda m: m[1] + MASK, _TOKEN.sub(f"anb_{MASK}", line))
        return masked_text(line)

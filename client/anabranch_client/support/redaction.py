"""Masking of secrets in texts and documents of a support bundle.

Three methods complement each other: masking known secret values (of environment variables and of
files in the pipeline's folder) wherever they occur; masking options by name; and masking patterns
of secrets in any text: passwords in URLs and connection strings, tokens, ``Authorization``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from anabranch_contract.connectors.secrets import MASK, PREFIXES, masked_options, masked_text

#: Minimum length of a masked value: shorter values would match ordinary words.
_SHORTEST = 6
_TOKEN = re.compile(r"\banb_[0-9a-f]{12}_[0-9a-f]{16,}")
_AUTHORIZATION = re.compile(r"((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
#: The quoted name of a secret with its quoted value, as JSON in logs has it.
_QUOTED = re.compile(
    r"""((\\?["'])[\w.-]*(?:passw|pwd|secret|credential|api_?key|access_?key)[\w.-]*\2\s*:\s*)"""
    r"""(\\?["']).*?\3""",
    re.IGNORECASE,
)
#: Files in a pipeline's folder that contain only a secret.
SECRET_FILES = ("admin.token", "redis/password")
#: Environment variables whose value is a secret; a variable with a URL that may have a password.
_VARIABLES, _ADDRESS = ("ANABRANCH_TOKEN",), "ANABRANCH_REDIS_URL"


def known_secrets(environ: Mapping[str, str], folder: Path) -> frozenset[str]:
    """The known secrets: from the environment, and from files of a pipeline's folder."""
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
    """Masks secrets in texts and documents."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """``secrets``: values to mask wherever they occur, plain or URL-encoded."""
        known = {form for s in secrets for form in (s, unquote(s), quote(s), quote(s, safe=""))}
        # The longest first, because a secret may be part of another.
        self._known = sorted((s for s in known if len(s) >= _SHORTEST), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Mask secrets in a text, line by line.

        >>> Redactor(["hunter22"]).text('redis://me:pw@h {"db.password": "x y"} hunter22')
        'redis://me:***@h {"db.password": ***} ***'
        >>> Redactor().text("Authorization: Bearer abcdefgh and jdbc:x://h?password=p&ssl=true")
        'Authorization: Bearer *** and jdbc:x://h?password=***&ssl=true'
        """
        return "\n".join(map(self._line, text.split("\n")))

    def document(self, document: Any) -> Any:
        """Mask secrets in a document: in all texts, including keys, and in options by name."""
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

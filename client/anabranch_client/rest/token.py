"""The access token of requests: from the environment or a file, never from the command line.

All users of the machine can see command lines, but neither environments nor files of mode 0600.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from pathlib import Path

from anabranch_client.errors import UsageError

TOKEN_VARIABLE = "ANABRANCH_TOKEN"
TOKEN_FILE_VARIABLE = "ANABRANCH_TOKEN_FILE"
#: Value of the running command's option ``--token-file``.
TOKEN_FILE: ContextVar[Path | None] = ContextVar("token_file", default=None)


def given_token(file: Path | None = None) -> str:
    """The token in ``file``, or else the token in the environment; empty if there is none.

    Raises:
        UsageError: the file can't be read, or does not contain a token.
    """
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    if file is None and os.environ.get(TOKEN_VARIABLE):
        return _checked(os.environ[TOKEN_VARIABLE], TOKEN_VARIABLE)
    if file is None and named:
        file = Path(named)
    return "" if file is None else read_token(file)


def read_token(file: Path) -> str:
    """Read the token in ``file``.

    Raises:
        UsageError: as for :func:`given_token`.
    """
    try:
        return _checked(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as cause:
        raise UsageError(
            f"the token file {file} can't be read: {cause}",
            field="--token-file",
            remedy="give a file that holds a token and nothing else",
        ) from cause


def headers(token: str | None) -> dict[str, str]:
    """The ``Authorization`` header with ``token``, by default the environment's; empty if none."""
    found = given_token() if token is None else token
    return {"Authorization": f"Bearer {found}"} if found else {}


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{where} holds no token",
            field="token",
            remedy="an administrator creates one with 'anabranch token create'",
        )
    return token

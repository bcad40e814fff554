"""The administrator's first token, needed to create others if tokens are required.

It is stored in a file that only the service's user can read. The log names only the file's path,
since the token permits administration of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from datetime import datetime
from pathlib import Path

import structlog
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as Silent

from anabranch_contract.rest.access import Role
from anabranch_service.access.tokens import TokenRecord, Tokens, id_of, make_token
from anabranch_service.errors import SettingsError

_LOG = structlog.get_logger(__name__)

NAME = "first administrator"

#: Longest wait for Redis when the service starts, and pause between two attempts, in seconds.
PATIENCE, PAUSE = 30.0, 0.5


def read_file(path: Path, now: datetime) -> TokenRecord | None:
    """Read the administrator's token from the file ``path``; None if there is no such file.

    Raises:
        SettingsError: the file does not hold a token, or can't be read.
    """
    try:
        text = path.read_text(encoding="ascii").strip()
        wide = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as cause:
        raise _unusable(path, f"can't be read: {cause}") from cause
    if wide:
        _LOG.warning("others can read the administrator's token", path=str(path))
    if id_of(text) is None:
        raise _unusable(path, "holds no token (anb_, 12 and 64 hexadecimal digits)")
    return make_token(NAME, Role.ADMIN, now, text=text).record


async def ensure(tokens: Tokens, path: Path, now: datetime) -> None:
    """Ensure that a usable administrator's token exists when the service starts.

    The token in the file is registered if Redis lacks it. If there is no administrator's token at
    all, one is created and written to the file.

    Raises:
        SettingsError: the file is unusable, or its token was revoked and no other one exists.
        RedisError: Redis does not answer within :data:`PATIENCE`.
    """
    known = await _patiently(tokens)
    # Redis is read before the file: another service writes the file before it registers the token.
    tokens.first = read_file(path, now)
    if tokens.first is not None and not any(r.id == tokens.first.id for r in known):
        await tokens.add(tokens.first, now)
        known = [*known, tokens.first]
    if any(r.role is Role.ADMIN and r.usable(now) for r in known):
        if tokens.first is not None:
            _LOG.info("administrator's token", path=str(path))
        return
    if tokens.first is not None:
        raise _unusable(path, "holds a token that was revoked, and there is no other administrator")
    made = make_token(NAME, Role.ADMIN, now)
    try:
        write_file(path, made.text)
    except SettingsError as cause:
        if not isinstance(cause.__cause__, FileExistsError):
            raise
        # Another service, which started at the same time, has made the token.
        await asyncio.sleep(PAUSE)
        await ensure(tokens, path, now)
        return
    tokens.first = made.record
    await tokens.add(made.record, now)
    _LOG.info("administrator's token created", path=str(path))


def write_file(path: Path, text: str) -> None:
    """Write a secret to a new file of mode 0600.

    Raises:
        SettingsError: the file exists already, or can't be written.
    """
    try:
        with contextlib.ExitStack() as stack:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            file = stack.enter_context(os.fdopen(handle, "w", encoding="ascii"))
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as cause:
        raise _unusable(path, f"can't be written: {cause}") from cause


async def _patiently(tokens: Tokens) -> list[TokenRecord]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while True:
        try:
            return await tokens.all()
        except (Disconnected, Silent):
            if loop.time() >= deadline:
                raise
            await asyncio.sleep(PAUSE)


def _unusable(path: Path, reason: str) -> SettingsError:
    return SettingsError(
        "bad-admin-token-file",
        f"{path} {reason}",
        field="admin_token_file",
        remedy="remove the file and start again to have a new one made, or name another",
    )

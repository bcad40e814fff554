"""Report of the cause of the driver's end to its parent process, as JSON through a pipe.

A pipe is used because a log has no reliable last line, Redis may be lost, and a disk may be full.
"""

from __future__ import annotations

import json
import os

from redis.exceptions import AuthenticationError, RedisError

from anabranch_contract.connectors.addresses import masked
from anabranch_contract.errors import StructuredError
from anabranch_runtime.control import Control
from anabranch_runtime.errors import PipelineError


def redis_away(error: RedisError, control: Control) -> PipelineError:
    """Return the structured error for a Redis that does not answer, or refuses access."""
    if isinstance(error, AuthenticationError):
        return PipelineError(
            "redis-refused",
            f"{control.where} refuses the runtime: {masked(str(error))}",
            remedy="correct the user and the password in the address",
        )
    return PipelineError(
        "redis-away",
        f"{control.where} does not answer: {masked(str(error))}",
        remedy="make Redis reachable, then start the runtime again; nothing is lost",
    )


def explained(error: BaseException) -> StructuredError:
    """Return ``error`` as a structured error; an error without code gets the code ``internal``."""
    if isinstance(error, StructuredError):
        return error
    return PipelineError(
        "internal",
        f"{type(error).__name__}: {error}",
        remedy="see the traceback in the runtime's log",
    )


def report_cause(pipe: int | None, run: str, error: BaseException) -> None:
    """Write code, message and remedy of ``error`` to the file descriptor ``pipe``, if there is one.

    The document has a limited size, so that it fits into the pipe without a reader.
    """
    if pipe is None:
        return
    found = explained(error)
    document = {
        "run": run,
        "code": found.code,
        "message": masked(str(found.detail))[:4000],
        "remedy": found.remedy[:1000],
    }
    try:
        os.write(pipe, json.dumps(document).encode() + b"\n")
    except OSError:
        # The parent process does not read the pipe any more.
        return

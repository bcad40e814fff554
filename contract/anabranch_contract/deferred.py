"""Modules of a package that are imported on their first use as its attributes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """Return the ``__getattr__`` of a package's ``__init__`` that imports its modules.

    >>> modules_of("anabranch_contract.rest")("slo").__name__
    'anabranch_contract.rest.slo'
    """

    def module(name: str) -> ModuleType:
        whole = f"{package}.{name}"
        try:
            if not name.startswith("_"):
                return import_module(whole)
        except ModuleNotFoundError as cause:
            if cause.name != whole:
                raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return module

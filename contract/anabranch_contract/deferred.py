"""Deferred imports: modules of a package that are imported when first used as its attributes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """Return a ``__getattr__`` for a package's ``__init__`` that imports the package's modules.

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

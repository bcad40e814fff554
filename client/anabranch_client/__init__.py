"""The Python client and the ``anabranch`` command line.

The names below are imported on their first use: the command line's start needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch_client.errors import ApiError, ClientError
    from anabranch_client.rest.api import AsyncClient, Client

__all__ = ["ApiError", "AsyncClient", "Client", "ClientError"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "errors" if name.endswith("Error") else "rest.api"
    return getattr(import_module(f"{__name__}.{home}"), name)

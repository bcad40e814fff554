"""The Python client and the ``anabranch`` command line."""

from __future__ import annotations

from anabranch_client.api import AsyncClient, Client
from anabranch_client.errors import ApiError, ClientError

__all__ = ["ApiError", "AsyncClient", "Client", "ClientError"]

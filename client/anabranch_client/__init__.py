"""The Python client and the ``anabranch`` command line."""

from __future__ import annotations

from anabranch_client.errors import ApiError, ClientError
from anabranch_client.rest.api import AsyncClient, Client

__all__ = ["ApiError", "AsyncClient", "Client", "ClientError"]

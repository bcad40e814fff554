"""A service that requires tokens, with a token of every role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from anabranch_contract.rest.access import Role
from anabranch_service.clock import Clock
from anabranch_service.settings import Auth, ServiceSettings
from tests.support.worlds.service import Service, serving


@dataclass(frozen=True)
class Guarded:
    """A running service that requires tokens.

    Attributes:
        service: client with the first administrator's token.
        tokens: role -> a token with it.
    """

    service: Service
    tokens: dict[Role, str]

    @property
    def url(self) -> str:
        """URL of the service."""
        return f"http://127.0.0.1:{self.service.settings.port}"

    def call(self, method: str, path: str, token: str | None, **more: Any) -> httpx.Response:
        """Send a request, with ``token`` or without one."""
        headers = {**more.pop("headers", {}), **bearer(token)}
        url = self.url + path
        return httpx.request(method, url, headers=headers, timeout=60, verify=False, **more)

    def create(self, role: str, **more: str) -> dict[str, Any]:
        """Create a token and return it."""
        body = {"name": f"a {role}", "role": role, **more}
        return self.service.post("/v1/tokens", body)


def bearer(token: str | None) -> dict[str, str]:
    """Return the header with a token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


@contextmanager
def guarded(settings: ServiceSettings, folder: Path, **more: Any) -> Iterator[Guarded]:
    """Context with a service under ``settings`` that requires tokens."""
    file = folder / "admin.token"
    changed = replace(settings, auth=Auth.REQUIRED, admin_token_file=str(file))
    clock: dict[str, Clock] = more
    with serving(changed, **clock) as service:
        service.http.headers.update(bearer(file.read_text().strip()))
        found = Guarded(service, {})
        for role in Role:
            found.tokens[role] = found.create(role)["token"]
        yield found

"""Read elements of a page that replaces them at every answer of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.worlds.service import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Locator


def drawn(elements: Locator, script: str) -> list[Any]:
    """Return values of the JavaScript function ``script`` for each of ``elements``.

    Waits until there is one and none has been replaced meanwhile.
    """
    found: list[Any] = []

    def read() -> bool:
        found[:] = elements.evaluate_all(f"x => x.every(e => e.isConnected) ? x.map({script}) : []")
        return bool(found)

    eventually(read, f"{elements} is on the page")
    return found

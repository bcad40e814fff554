"""Fixtures: one browser for all modules of page tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.surroundings.browsers import launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="package")
def browser(chromium: Path) -> Iterator[Browser]:
    with launched(chromium) as running:
        yield running

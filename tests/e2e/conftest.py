"""Fixtures: a browser for tests of a live pipeline's console; settings of a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch_contract.protocol.progress import Mode
from anabranch_service.settings import ServiceSettings
from tests.support.surroundings.browsers import launched
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.redis import redis_url

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    with launched(chromium) as running:
        yield running


@pytest.fixture(scope="module")
def settings() -> Iterator[ServiceSettings]:
    """Settings of a live service in the test's process."""
    with redis_url() as url:
        yield ServiceSettings().changed(
            redis_url=url, mode=Mode.LIVE, parallelism=2, poll_seconds=0.005, access=OPEN
        )

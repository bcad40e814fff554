"""A headless Chromium for tests of pages, and their looks: window widths and colour schemes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Milliseconds for an expectation of a page; long, since other tests run on the same few cores.
PATIENCE: Final = 60_000
#: Parameters ``width`` (pixels) and ``scheme``: narrow and dark by default, since other tests of
#: the same pages use a wide window and a light scheme.
LOOKS: Final = pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "dark"),
        pytest.param(1440, "light", marks=pytest.mark.slow),
        pytest.param(1440, "dark", marks=pytest.mark.slow),
        pytest.param(390, "light", marks=pytest.mark.slow),
    ],
)


@contextmanager
def launched(chromium: Path) -> Iterator[Browser]:
    """Context with a running browser, in which its thread has a running event loop.

    Pages of one origin share a browser context: a page in a separate context takes three times the
    CPU time.
    """
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=str(chromium), args=["--no-sandbox"], headless=True
        )
        running.new_context(locale="en-US")
        yield running
        running.close()

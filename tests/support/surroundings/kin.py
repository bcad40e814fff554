"""Child processes of a test's own process, which other tests share, start in, and end in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil


def kin(matches: Callable[[list[str]], bool] = bool) -> list[psutil.Process]:
    """Return running descendants whose command line ``matches``; one that ends is passed over."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            # An ended process has no command line until its parent waits for it.
            if matches(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def no_kin_left() -> Iterator[None]:
    """Context that leaves no descendant of its own, whatever of earlier ones ends meanwhile."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before

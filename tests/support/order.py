"""Random order of tests, to find tests that depend on other tests before them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar


class Placed(Protocol):
    """A test in a file."""

    path: Path


T = TypeVar("T", bound=Placed)


def shuffled(tests: Sequence[T], seed: int) -> list[T]:
    """Return ``tests`` in a random order of folders, of files in a folder, and of tests in a file.

    Fixtures of a folder or a file are set up once, as in the usual order.

    >>> from types import SimpleNamespace
    >>> tests = [
    ...     SimpleNamespace(path=Path(folder, file), name=name)
    ...     for folder in "ab" for file in "xy" for name in "12"
    ... ]
    >>> [f"{test.path}{test.name}" for test in shuffled(tests, 7)]
    ['b/y1', 'b/y2', 'b/x1', 'b/x2', 'a/y1', 'a/y2', 'a/x2', 'a/x1']
    """
    draw = Random(seed)
    files = sorted({test.path for test in tests})
    folders = sorted({file.parent for file in files})
    for places in (files, folders):
        draw.shuffle(places)
    by_folder = {folder: at for at, folder in enumerate(folders)}
    by_file = {file: at for at, file in enumerate(files)}
    mixed = draw.sample(tests, len(tests))
    return sorted(mixed, key=lambda test: (by_folder[test.path.parent], by_file[test.path]))

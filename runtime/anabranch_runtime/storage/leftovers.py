"""Leftovers of failed attempts and lost merges.

A pack has the number of its batch in its name. Once later batches have committed, a pack of that
batch that no manifest names is garbage for ever. For packs of merges and staged results the age
decides: a live process has named or dropped its files long before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

#: Seconds after which an unnamed file is garbage.
AGE = 3600.0


class ListedFile(NamedTuple):
    """A file or an object: its name, its bytes, and when it was written (seconds since 1970)."""

    name: str
    size: int
    changed: float


def leftovers(found: Sequence[ListedFile], named: Collection[str], batch: int) -> list[str]:
    """Garbage among the packs and staged results ``found``.

    Args:
        found: of one store, whose clock is known by the newest of them.
        named: by manifests that are kept, or soon.
        batch: the first batch with packs that may still be named.

    >>> old, new = 0.0, 2 * AGE
    >>> found = [ListedFile("segments/0000000007-a-0-base.pack", 1, new),
    ...          ListedFile("segments/0000000007-b-0-base.pack", 1, new),
    ...          ListedFile("segments/0000000009-c-0-base.pack", 1, old),
    ...          ListedFile("segments/merged-d.pack", 1, old),
    ...          ListedFile("segments/merged-e.pack", 1, new)]
    >>> leftovers(found, {"segments/0000000007-a-0-base.pack"}, 9)
    ['segments/0000000007-b-0-base.pack', 'segments/merged-d.pack']
    """
    now = max((one.changed for one in found), default=0.0)
    left = []
    for one in found:
        number = one.name.rpartition("/")[2].partition("-")[0]
        spent = int(number) < batch if number.isdecimal() else now - one.changed > AGE
        if spent and one.name not in named:
            left.append(one.name)
    return left

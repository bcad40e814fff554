"""Leftovers: files of failed attempts and lost merges that may be deleted.

A pack's name contains the number of its batch. Once later batches have committed, a pack of the
batch that no manifest names is garbage. Packs of merges and staged results are garbage after
``AGE`` seconds: by then, a running process has named them in a manifest or deleted them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

#: Seconds after which a file that no manifest names is garbage.
AGE = 3600.0


class ListedFile(NamedTuple):
    """A listed file or object: name, size in bytes, and modification time (seconds since 1970)."""

    name: str
    size: int
    changed: float


def leftovers(found: Sequence[ListedFile], named: Collection[str], batch: int) -> list[str]:
    """Return the names of garbage among the packs and staged results ``found``.

    Args:
        found: files of one file system or object store; the time of the newest file counts as now.
        named: packs that kept manifests name, or that the next one will name.
        batch: the first batch whose packs may still be named.

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

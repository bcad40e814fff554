"""Read-ahead of the operating system for memory-mapped state.

A probe reads scattered pages of a store. If the state fits into memory, read-ahead does no harm. If
it does not fit, the kernel's read-ahead beyond each needed page (128 KiB, on some disks 8 MiB)
evicts needed pages for unneeded ones: a join in a small control group read 990 GB from a state of
44 MB. So then files are mapped for random access, as LMDB's ``MDB_NORDAHEAD`` does, and ranges with
many needed rows are prefetched as a whole (``index.prefetch``).
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

#: A state fits into memory if the memory left for pages is at least this multiple of its size.
_SHARE = 2
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
#: Control groups, versions 1 and 2: folder, statistic with private memory, file with the limit.
_VERSION_1 = ("memory", "total_rss", "memory.limit_in_bytes")
_VERSION_2 = ("", "anon", "memory.max")


@dataclass(frozen=True, slots=True)
class Mapped:
    """A file's bytes as a buffer, and the memory mapping behind the buffer (None: an empty file).

    The file stays mapped as long as an array over it exists.
    """

    buffer: pa.Buffer
    mapping: mmap.mmap | None

    def scatter(self, scattered: bool) -> None:
        """Set whether files mapped from now on are accessed randomly: then without read-ahead."""
        if self.mapping is not None and hasattr(mmap, "MADV_RANDOM"):
            self.mapping.madvise(mmap.MADV_RANDOM if scattered else mmap.MADV_NORMAL)


def map_file(path: Path) -> Mapped:
    """Map the file at ``path`` into memory.

    Raises:
        OSError: the file can't be read.
    """
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return Mapped(pa.py_buffer(b""), None)
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return Mapped(pa.py_buffer(mapping), mapping)


def fits(size: int, proc: Path = _PROC, groups: Path = _GROUPS) -> bool:
    """Whether ``size`` bytes of files will stay in memory once read, by the memory available now.

    If that is unknown (for example without ``/proc``), True is returned.

    Args:
        proc, groups: the folders ``/proc`` and of control groups.
    """
    room = _room(proc, groups, int(time.monotonic()))
    return room is None or size * _SHARE <= room


@lru_cache(maxsize=1)
def _room(proc: Path, groups: Path, _second: int) -> int | None:
    """Return the bytes available for pages of files; None if unknown. Cached for a second, since it
    takes 0.2 ms to read the kernel's files."""
    left = [_on_host(proc), *_in_groups(proc, groups)]
    return min((room for room in left if room is not None), default=None)


def _on_host(proc: Path) -> int | None:
    """Return the host's bytes available for pages of files; None if unknown."""
    found = _table(proc / "meminfo").get("MemAvailable:")
    return None if found is None else found * 1024


def _in_groups(proc: Path, groups: Path) -> Iterator[int | None]:
    """Yield, for each control group of this process, the bytes available for pages of files."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        where, private, limit = _VERSION_1 if controllers else _VERSION_2
        top = groups / where
        folder = top / path.lstrip("/")
        while True:
            yield _left(folder, private, limit)
            if folder == top or top not in folder.parents:
                break
            folder = folder.parent


def _left(folder: Path, private: str, limit: str) -> int | None:
    try:
        most = int((folder / limit).read_text())
    except (OSError, ValueError):
        # There is no such group, as in a container with another hierarchy, or no limit ("max").
        return None
    taken = _table(folder / "memory.stat").get(private)
    return None if taken is None else most - taken


def _table(path: Path) -> dict[str, int]:
    """Parse a file of the kernel whose lines have a name and a number."""
    try:
        rows = (line.split() for line in path.read_text().splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
    except OSError:
        return {}

"""Read-ahead of the kernel for mapped state.

A probe of a store touches pages here and there. While all of a state fits into memory it does not
matter how they come; where it does not, the kernel's habit of reading on beyond the needed page
(128 KiB, on some disks 8 MiB) pushes out needed pages for unneeded ones: a join within a small
control group was seen to read 990 GB of a state of 44 MB. So then files are mapped for random
access, as LMDB's ``MDB_NORDAHEAD`` does, and ranges with many needed rows are fetched as a whole
(``index.prefetch``).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

#: The share of the memory left for pages that state may take and is still said to fit.
_SHARE = 2
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
#: Of control groups of version 1 and 2: where, whose statistics call private memory so; the limit.
_VERSION_1 = ("memory", "total_rss", "memory.limit_in_bytes")
_VERSION_2 = ("", "anon", "memory.max")


@dataclass(frozen=True, slots=True)
class Mapped:
    """A file's bytes as a buffer, and the mapping that they come by (None: there are none).

    The mapping goes with the last array that shows it.
    """

    buffer: pa.Buffer
    mapping: mmap.mmap | None

    def scatter(self, scattered: bool) -> None:
        """Set whether its pages are read here and there, and are not to bring others."""
        if self.mapping is not None and hasattr(mmap, "MADV_RANDOM"):
            self.mapping.madvise(mmap.MADV_RANDOM if scattered else mmap.MADV_NORMAL)


def map_file(path: Path) -> Mapped:
    """The bytes of the file at ``path``.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return Mapped(pa.py_buffer(b""), None)
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return Mapped(pa.py_buffer(mapping), mapping)


def fits(size: int, proc: Path = _PROC, groups: Path = _GROUPS) -> bool:
    """Whether ``size`` bytes of files will stay in memory once they are there.

    True also where it is unknown, as on systems without ``/proc``.

    Args:
        proc, groups: folders in which the system describes itself.
    """
    left = [_on_host(proc), *_in_groups(proc, groups)]
    return all(size * _SHARE <= room for room in left if room is not None)


def _on_host(proc: Path) -> int | None:
    """Bytes that could hold pages of files, in all."""
    found = _table(proc / "meminfo").get("MemAvailable:")
    return None if found is None else found * 1024


def _in_groups(proc: Path, groups: Path) -> Iterator[int | None]:
    """The same for each control group that this process is in."""
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
        # No such group here, as in a container that sees another tree; or no limit ("max").
        return None
    taken = _table(folder / "memory.stat").get(private)
    return None if taken is None else most - taken


def _table(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        rows = (line.split() for line in path.read_text().splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
    except OSError:
        return {}

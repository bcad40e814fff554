"""Memory limits of processes, including page cache, by control groups; creating one needs
privileges.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup/memory")
#: Reason for the lack of control groups, and the remedy.
UNAVAILABLE = (
    "no memory control group can be made: this takes a Linux with control groups of version 1 "
    "mounted at /sys/fs/cgroup/memory, and privileges"
)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group, whose processes may use ``limit`` bytes together, page cache included."""

    folder: Path
    limit: int

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return a command that runs ``arguments`` in the group."""
        return ["sh", "-c", f'echo $$ > "{self.folder}/tasks" && exec "$@"', "sh", *arguments]

    @property
    def peak(self) -> int:
        """Greatest memory use so far, page cache included."""
        return int((self.folder / "memory.max_usage_in_bytes").read_text())


@contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup | None]:
    """Context with a new group; None if groups can't be created (see :data:`UNAVAILABLE`)."""
    folder = _ROOT / f"anabranch-{uuid.uuid4().hex[:12]}"
    try:
        folder.mkdir()
    except OSError:
        yield None
        return
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit))
        yield MemoryGroup(folder, limit)
    finally:
        # Removing the directory removes the group; the files in it are virtual.
        subprocess.run(["rmdir", str(folder)], check=False, capture_output=True)

"""A cap on a process's memory and its page cache: control groups. Making one takes privileges."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup/memory")
#: Why there may be none, and what can be done.
UNAVAILABLE = (
    "no memory control group can be made: this takes a Linux with control groups of version 1 "
    "mounted at /sys/fs/cgroup/memory, and privileges"
)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group; what runs in it has ``limit`` bytes, page cache included."""

    folder: Path
    limit: int

    def command(self, arguments: Sequence[str]) -> list[str]:
        """A command that runs ``arguments`` in the group."""
        return ["sh", "-c", f'echo $$ > "{self.folder}/tasks" && exec "$@"', "sh", *arguments]

    @property
    def peak(self) -> int:
        """The most that was in use, page cache included."""
        return int((self.folder / "memory.max_usage_in_bytes").read_text())


@contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup | None]:
    """A group of its own; None where that is not possible (see :data:`UNAVAILABLE`)."""
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
        # Removing the directory removes the group; its files are the kernel's.
        subprocess.run(["rmdir", str(folder)], check=False, capture_output=True)

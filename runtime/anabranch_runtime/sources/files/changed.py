"""Detection of files that change after they were found, and of reused names.

Overwriting a file does not change its directory's modification time. So files in the log are
checked one after the other, within a small share of the time (``SHARE``). A file has changed if its
size or modification time (mtime) differs. If only its status change time (ctime) differs, which may
be due to new permissions or links, its first and last bytes are compared. A change takes effect
once it has been stable for a while, so that files are not read while they are being written.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_contract.connectors.sources import OnChangedFile
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.feed import PieceError
from anabranch_runtime.sources.files.log import FileLog, FoundFile

#: Maximum share of time spent on checking known files for changes.
SHARE = 0.02
#: Seconds that one series of checks may take, and least seconds between two checks of a file.
SLICE, PAUSE = 0.01, 1.0
#: Seconds for which a change must be stable; seconds until it is recorded in any case.
SETTLED, PATIENCE = 1.0, 30.0
#: Least seconds between two records of changes of the same file.
QUIET = 60.0
#: Number of bytes at each end of a file that its checksum covers.
ENDS = 1 << 13

_UNREAD = PieceError(
    "file-changed", "it changed before any of it was read; its new content is read as a new file"
)
_WARNING = PieceError(
    "file-changed",
    "it changed, or another file took its name, after it had been read or skipped: the new content"
    " is not read (put new data into files of new names, or set on_changed_file to read)",
)


@dataclass(slots=True)
class _FileChange:
    """A pending change of a file: its new status, and when it was first and last noticed."""

    stat: os.stat_result
    first: float
    last: float


@dataclass(slots=True)
class ChangeWatch:
    """Detects changes of the files of one directory.

    Attributes:
        names: name -> number of the newest file with this name in the log; updated by :meth:`know`.
        permitted: whether the access policy allows reading a path.
    """

    directory: Path
    log: FileLog
    policy: OnChangedFile
    permitted: Callable[[str], bool]
    names: dict[str, int] = field(default_factory=dict)
    _upto: int = 0
    _next: float = 0.0
    _turn: list[str] = field(default_factory=list)
    _changes: dict[str, _FileChange] = field(default_factory=dict)
    _quiet: dict[str, float] = field(default_factory=dict)
    #: Number of a file in the log -> status change time and checksum when it was found.
    _marks: dict[int, tuple[int, int]] = field(default_factory=dict)

    def know(self) -> None:
        """Add the files that are new in the log to ``names``."""
        for number in range(self._upto, len(self.log.files)):
            self.names[self.log.files[number].name] = number
        self._upto = len(self.log.files)

    def look(self, number: int, position: int) -> None:
        """Check some files for changes; add changed ones to the log if they are to be read again.

        Args:
            number, position: the offset up to which files have been planned.

        Raises:
            SourceError: ``file-changed``: a file has changed, and the policy is to stop.
        """
        began = time.monotonic()
        if began >= self._next:
            self._slice(began, number)
            spent = time.monotonic() - began
            rest = PAUSE if not self._turn else spent / SHARE
            self._next = began + max(rest, spent / SHARE)
        for name in [n for n, c in self._changes.items() if self._counts(n, c, began)]:
            self._apply(name, number, position, began)
        self.know()

    def _slice(self, began: float, planned: int) -> None:
        self._turn = self._turn or list(self.names)
        for name in list(self._changes):
            self._compare(name, began, planned)
        while self._turn and time.monotonic() - began < SLICE:
            self._compare(self._turn.pop(), began, planned)

    def _compare(self, name: str, now: float, planned: int) -> None:
        path = str(self.directory / name)
        number = self.names[name]
        try:
            stat = os.stat(path)
            same = self._is_same(path, number, stat, read=number < planned)
        except OSError:
            # A deleted file does not count as changed; an inaccessible file can't be checked.
            self._changes.pop(name, None)
            return
        if same:
            self._changes.pop(name, None)
            return
        known = self._changes.get(name)
        if known is None:
            self._changes[name] = _FileChange(stat, now, now)
        elif _signature(known.stat) != _signature(stat):
            known.stat, known.last = stat, now

    def _is_same(self, path: str, number: int, stat: os.stat_result, *, read: bool) -> bool:
        file, known = self.log.files[number], self._marks.get(number)
        if (stat.st_size, stat.st_mtime_ns) != (file.size, file.mtime):
            return False
        # While no row of the file has been read, only its size and mtime have to be equal.
        if read and (known is None or known[0] != stat.st_ctime_ns):
            if not self.permitted(path):
                return True
            mark = _mark(path, stat.st_size)
            if known is not None and known[1] != mark:
                return False
            self._marks[number] = (stat.st_ctime_ns, mark)
        return True

    def _counts(self, name: str, change: _FileChange, now: float) -> bool:
        if now < self._quiet.get(name, 0.0):
            return False
        return now - change.last >= SETTLED or now - change.first >= PATIENCE

    def _apply(self, name: str, number: int, position: int, now: float) -> None:
        change, entry = self._changes[name], self.names[name]
        begun = entry < number or (entry == number and position > 0)
        unread = entry >= number and entry not in self.log.left_out
        if self.policy is OnChangedFile.STOP and not unread:
            raise SourceError(
                "file-changed",
                f"{self.directory / name} changed, or another file took its name, after it had been"
                " read",
                field="source.options.on_changed_file",
                remedy="restore the original file or remove it, and put new data into files of new"
                " names; or set on_changed_file to read its new content, or to warn only",
            )
        read = self.policy is OnChangedFile.READ and now - change.last >= SETTLED
        if unread and not read:
            # Reading the rest of the file will fail and report the change, so none is recorded.
            return
        stat = change.stat
        self.log.add([FoundFile(name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)])
        if not read:
            self.log.leave_out(len(self.log.files) - 1, _WARNING)
            self._quiet[name] = now + QUIET
        elif not begun and entry not in self.log.left_out:
            self.log.leave_out(entry, _UNREAD)
        del self._changes[name]
        self._marks.pop(entry, None)
        self.know()


def _signature(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _mark(path: str, size: int) -> int:
    """Return a checksum of the bytes at both ends of a file."""
    with open(path, "rb") as file:
        mark = zlib.crc32(file.read(ENDS))
        file.seek(max(size - ENDS, 0))
        return zlib.crc32(file.read(ENDS), mark)

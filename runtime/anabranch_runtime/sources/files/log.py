"""Log of the files found in a directory: one line per file, durable before offsets refer to it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_runtime.sources.feed import PieceError

GONE = PieceError("missing-file", "it was removed before any of it was read")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was found.

    Attributes:
        mtime: modification time, nanoseconds since 1970.
        appeared: status change time, nanoseconds since 1970: the time at which the file got its
            name or content in the directory. Unlike ``mtime`` it can't be set by the writer.
    """

    name: str
    size: int
    mtime: int
    appeared: int


@dataclass(slots=True)
class FileLog:
    """The log of one directory.

    Attributes:
        files: files in the order in which they were found.
        left_out: number of a file -> error that makes its unread part be skipped.
    """

    path: Path
    files: list[FoundFile] = field(default_factory=list)
    left_out: dict[int, PieceError] = field(default_factory=dict)

    @staticmethod
    def load(path: Path) -> FileLog:
        """Load the log of found files at ``path``; an incomplete last line is cut off."""
        log = FileLog(path)
        for line in read_lines(path):
            document = json.loads(line)
            if isinstance(document, int):
                log.left_out[document] = GONE
            elif isinstance(document, dict):
                number, code, message = (document[k] for k in ("bad", "code", "message"))
                log.left_out[number] = PieceError(code, message)
            else:
                log.files.append(FoundFile(*document))
        return log

    def add(self, files: list[FoundFile]) -> None:
        """Append found files to the log, durably."""
        self._append([json.dumps([f.name, f.size, f.mtime, f.appeared]) for f in files])
        self.files += files

    def leave_out(self, number: int, why: PieceError) -> None:
        """Record in the log, durably, that the unread part of a file will never be read."""
        bad = {"bad": number, "code": why.code, "message": why.message}
        self._append([str(number) if why is GONE else json.dumps(bad)])
        self.left_out[number] = why

    def _append(self, lines: list[str]) -> None:
        append_lines(self.path, lines)


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a log, none if it does not exist; an incomplete last line is cut off."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        with path.open("r+b") as file:
            file.truncate(len(whole))
            os.fsync(file.fileno())
    return whole.splitlines()


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines to a log of found files, durably."""
    if not lines:
        return
    with path.open("a") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())

"""Check for the process that holds the lock of a pipeline's folder: its command and start time."""

from __future__ import annotations

import fcntl
import shlex
from datetime import UTC, datetime
from pathlib import Path

import psutil

from anabranch_client.doctor.findings import Finding, Verdict
from anabranch_client.supervise.home import HeldError, holder_of, left_behind, refuse_held
from anabranch_client.times import moment

_CHECK = "held by"
_LOCKS = Path("/proc/locks")


def check_holder(folder: Path) -> Finding:
    """Report the process that holds the lock of ``folder``."""
    try:
        refuse_held(folder)
    except HeldError:
        return _held(folder)
    left = left_behind(folder)
    if left:
        said = f"nobody, but {len(left)} processes of an `anabranch up` that was killed still run"
        remedy = f"anabranch down --dir {folder}, or start it again"
        return Finding(_CHECK, Verdict.WARN, said, remedy, {"left": [p.pid for p in left]})
    lock = folder / "state" / "lock"
    if _locked(lock):
        process = owner(lock)
        said = "no `anabranch up`, but a runtime uses its state"
        if process is not None:
            said = f"nobody, but {described(process)} uses its state"
        remedy = "end it, or name another folder"
        return Finding(_CHECK, Verdict.WARN, said, remedy, _facts(process))
    return Finding(_CHECK, Verdict.OK, "nobody", facts=_facts(None))


def described(process: psutil.Process) -> str:
    """A process as text: its id, its command, and its start time."""
    try:
        command, since = shlex.join(process.cmdline()), process.create_time()
    except psutil.Error:
        return f"process {process.pid}"
    began = moment(datetime.fromtimestamp(since, UTC).isoformat())
    return f"process {process.pid} ({command or process.name()}) since {began}"


def owner(lock: Path) -> psutil.Process | None:
    """The process that has locked a file, as the kernel lists it; None if unknown."""
    try:
        inode = str(lock.stat().st_ino)
        lines = [line.split() for line in _LOCKS.read_text().splitlines()]
        numbers = [
            int(parts[4])
            for parts in lines
            # The line of a process that waits for a lock has an arrow in an additional column.
            if parts[1] == "FLOCK" and parts[5].rpartition(":")[2] == inode
        ]
        return next((psutil.Process(number) for number in numbers if number > 0), None)
    except (OSError, ValueError, IndexError, psutil.Error):
        return None


def _held(folder: Path) -> Finding:
    holder = holder_of(folder)
    process = None if holder is None else holder.process()
    if process is None:
        process = owner(folder / "up.lock")
    if process is None:
        said = "an `anabranch up` that is just starting, or of another machine"
        return Finding(_CHECK, Verdict.WARN, said, "look again in a moment", _facts(None))
    url = "" if holder is None else holder.url
    said = described(process) + (f", {url}" if url else "")
    return Finding(_CHECK, Verdict.OK, said, facts={**_facts(process), "url": url or None})


def _facts(process: psutil.Process | None) -> dict[str, object]:
    if process is None:
        return {"pid": None}
    try:
        since = datetime.fromtimestamp(process.create_time(), UTC).isoformat()
        return {"pid": process.pid, "command": process.cmdline(), "since": since}
    except psutil.Error:
        return {"pid": process.pid}


def _locked(path: Path) -> bool:
    """Whether a process has locked the file ``path``; tries to lock it without waiting."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

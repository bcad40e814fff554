"""The interpreter of Spark's Python processes on this host.

Spark puts its own zip of ``pyspark`` first on their path, and modules in a zip are compiled again
by every process that imports them: a second of processor time, where the installed package takes a
third of that. So they are started by a script that leaves the zips out.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

from anabranch_runtime.spark.class_archive import cache_folder

_SCRIPT = """#!/bin/sh
PYTHONPATH={path}
export PYTHONPATH
exec {python} "$@"
"""


def worker_interpreter() -> str:
    """Return a program that runs this process's Python with this process's path.

    The program is kept in the user's cache directory under a name that its text decides, so a
    runtime that is killed leaves nothing behind.
    """
    text = _SCRIPT.format(
        path=shlex.quote(os.environ.get("PYTHONPATH", "")), python=shlex.quote(sys.executable)
    )
    script = cache_folder() / f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}" / "python"
    try:
        if not _is_there(script, text):
            script.parent.mkdir(parents=True, exist_ok=True)
            draft = script.with_name(f"{script.name}.{os.getpid()}")
            draft.write_text(text)
            draft.chmod(0o755)
            draft.replace(script)
    except OSError:
        # Not writable: Spark's processes start a little slower.
        return sys.executable
    # Nothing can be run from a file system that is mounted so.
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _is_there(script: Path, text: str) -> bool:
    """Whether ``script`` can be run and says ``text``; what another user has put there is not."""
    try:
        mine = script.stat().st_uid == os.getuid()
        return mine and os.access(script, os.X_OK) and script.read_bytes() == text.encode()
    except OSError:
        return False

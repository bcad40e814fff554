"""The Python interpreter of Spark's worker processes on this host.

Spark puts its zip of ``pyspark`` first on their module path. A process compiles all modules that it
imports from a zip, which takes a second of CPU time, three times as long as with the installed
package. So a script that removes the zips from the path starts the processes.
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
    """Return the path of a script that runs this process's Python with this process's module path.

    The script is in the user's cache directory, named by a digest of its text, so every runtime of
    an installation uses the same file.
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
        # The directory is not writable; without the script, processes start a little slower.
        return sys.executable
    # Some file systems do not allow files to be executed.
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _is_there(script: Path, text: str) -> bool:
    """Whether ``script`` is an executable file of this user with the content ``text``."""
    try:
        mine = script.stat().st_uid == os.getuid()
        return mine and os.access(script, os.X_OK) and script.read_bytes() == text.encode()
    except OSError:
        return False

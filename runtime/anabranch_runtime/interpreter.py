"""The interpreter of Spark's Python processes on this host.

Spark puts its own zip of ``pyspark`` first on their path, and modules in a zip are compiled anew by
every process that imports them: a second of processor time for each start of a source, where the
installed package takes a third of that. So they are started by a script that leaves the zips out.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

_SCRIPT = """#!/bin/sh
PYTHONPATH={path}
export PYTHONPATH
exec {python} "$@"
"""


def worker_interpreter() -> str:
    """A program that runs this process's Python with this process's path, until it ends."""
    home = Path(tempfile.mkdtemp(prefix="anabranch-python-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "python"
    script.write_text(
        _SCRIPT.format(
            path=shlex.quote(os.environ.get("PYTHONPATH", "")), python=shlex.quote(sys.executable)
        )
    )
    script.chmod(0o755)
    # Nothing can be run from a file system that is mounted so.
    return str(script) if os.access(script, os.X_OK) else sys.executable

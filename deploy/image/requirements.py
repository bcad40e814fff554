"""Print what a room needs where it runs alone: ``python requirements.py ROOM [EXTRA]``.

That is its extra in ``pyproject.toml``, ``EXTRA``, and the contract's, a part of every room.
"""

import sys
import tomllib
from pathlib import Path

PARTS = {"service": ("contract", "service"), "runtime": ("contract", "runtime")}

if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    parts = (*PARTS[sys.argv[1]], *sys.argv[2:])
    wanted = {requirement for part in parts for requirement in extras[part]}
    sys.stdout.write("\n".join(sorted(wanted)) + "\n")

"""Print what a room needs where it runs alone: ``python requirements.py ROOM``.

That is its extra in ``pyproject.toml`` and the contract's, which is a part of every room.
"""

import sys
import tomllib
from pathlib import Path

PARTS = {"service": ("contract", "service"), "runtime": ("contract", "runtime")}

if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {requirement for part in PARTS[sys.argv[1]] for requirement in extras[part]}
    sys.stdout.write("\n".join(sorted(wanted)) + "\n")

"""Print what a room needs where it runs alone: ``python requirements.py ROOM``."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
sys.stdout.write("\n".join(project["optional-dependencies"][sys.argv[1]]) + "\n")

"""Exit with code 0 if no change since a commit affects the benchmarks, else with 1.

``python scripts/benchmarks_untouched.py COMMIT`` compares HEAD with its common ancestor with
COMMIT. A change affects them if it is in their folders or tests, in a module that these import, or
in a file that decides how tests run. If the commit is unknown, they count as affected.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("benchmarks", "tests/benchmarks")
#: Folders whose children are imported by name, as in pyproject.toml.
PATHS: Final = (".", "contract", "planner", "runtime", "service", "client")
#: Files that affect how all tests run, or the data of tests.
ALWAYS: Final = frozenset({"Makefile", "constraints.txt", "pyproject.toml", "tests/conftest.py"})


def main() -> int:
    """Print the reason for running the benchmarks' tests; returns the exit code."""
    parser = argparse.ArgumentParser(description="Whether benchmarks are left as they were.")
    parser.add_argument("since", nargs="?", default="", help="commit to compare with")
    found = reached(ROOT, parser.parse_args().since)
    if found == []:
        return 0
    why = "unknown changes" if found is None else f"changes of {', '.join(found[:5])}"
    sys.stdout.write(f"Running the tests of benchmarks: {why}\n")
    return 1


def reached(root: Path, since: str) -> list[str] | None:
    """Return the changed files that affect the benchmarks, sorted; None: changes are unknown."""
    if not since:
        return None
    command = ["git", "diff", "--name-only", "--no-renames", "-z", f"{since}...HEAD", "--"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    used = ALWAYS | imported(root)
    return sorted(
        path
        for path in done.stdout.split("\0")
        if path in used or path.startswith(tuple(f"{folder}/" for folder in FOLDERS))
    )


def imported(root: Path) -> set[str]:
    """Return the tree's modules that benchmarks and their tests import, as paths."""
    names: set[str] = set()
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            names |= set(_names(ast.parse(path.read_text(encoding="utf-8"))))
    parts = {name.replace(".", "/") for name in names}
    files = {f"{part}{end}" for part in parts for end in (".py", "/__init__.py")}
    roots = [root / path for path in PATHS]
    return {
        (one / file).relative_to(root).as_posix()
        for file in files
        for one in roots
        if (one / file).is_file()
    }


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield imported modules, and names imported from modules, which may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


if __name__ == "__main__":
    sys.exit(main())

"""Generates two parts of docs/glossary.md: the folder of each term's code, and the list of folders.

The list has the first paragraph of each folder's docstring, so nothing is maintained twice.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.reference.table import table

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("contract", "planner", "service", "runtime", "client")
TITLE: Final = "## Rooms"
_CODE: Final = re.compile(r"\| `(\w+)`(?: in `[\w/]+/`)? \|$", re.MULTILINE)
_DEFINED: Final = re.compile(r"^(?:class |def )(\w+)|^(\w+) = NewType", re.MULTILINE)
_ROLE: Final = re.compile(r":\w+:(`[^`]*`)")


def page(text: str) -> str:
    """Return the glossary's ``text`` with the folders of today's code."""
    places: dict[str, set[str]] = defaultdict(set)
    for room, folder in _folders():
        for file in folder.glob("*.py"):
            for one, other in _DEFINED.findall(file.read_text("utf-8")):
                places[one or other].add(room)

    def code(found: re.Match[str]) -> str:
        rooms = places[found[1]]
        return f"| `{found[1]}`" + (f" in `{min(rooms)}/`" if len(rooms) == 1 else "") + " |"

    rows = [[f"`{room}/`", _about(folder)] for room, folder in _folders()]
    intro = (
        f"{TITLE}\n\nThe folders of the product, without the packages' names. Made from their "
        "docstrings by\n`make reference`."
    )
    return "\n".join(
        [
            _CODE.sub(code, text[: text.index(TITLE)]) + f"{intro}\n",
            *table(["room", "contents"], rows),
            "",
        ]
    )


def _folders() -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each folder with code."""
    for package in PACKAGES:
        root = ROOT / package / f"anabranch_{package}"
        for file in sorted(root.rglob("__init__.py")):
            yield (Path(package) / file.parent.relative_to(root)).as_posix(), file.parent


def _about(folder: Path) -> str:
    doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    return _ROLE.sub(r"\1", " ".join(doc.split("\n\n")[0].split())).replace("``", "`")

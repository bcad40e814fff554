"""Write the reference pages, or check them: ``python -m scripts.reference [--check]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from scripts.reference import cli, errors, rest, rooms, settings, site_index, statements, tried
from scripts.site_pages import PAGES

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"


def pages() -> dict[str, str]:
    """Return the name of each page in docs/ and its text."""
    guide = (DOCS / "rest-guide.md").read_text(encoding="utf-8")
    return {
        "cli.md": cli.page(),
        "errors.md": errors.page(),
        "glossary.md": rooms.page((DOCS / "glossary.md").read_text(encoding="utf-8")),
        "rest.md": rest.page(guide),
        "settings.md": settings.page(),
        "llms.txt": site_index.page(PAGES),
        "sql.md": tried.page(statements.page((DOCS / "sql.md").read_text(encoding="utf-8"))),
    }


def main() -> int:
    """Write or check the pages; returns 1 if a page was not current and ``--check`` was given."""
    parser = argparse.ArgumentParser(prog="python -m scripts.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    outdated = {
        DOCS / name: text
        for name, text in pages().items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != text
    }
    for path, text in outdated.items():
        sys.stdout.write(f"docs/{path.name}\n")
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return int(bool(outdated) and options.check)


if __name__ == "__main__":
    sys.exit(main())

"""Hook of mkdocs.yml: adds pages outside of docs/ to the site, and converts links between pages.

Pages link to each other by paths within the repository, so that they can be read there. On the
site, pages of the root and of deploy/ are in the same folder as pages of docs/, and other linked
files (manifests, code) are served unchanged. A link to a missing file is not converted, so that the
strict build refuses it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
#: Page of the repository → page of the site.
PAGES: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "readme.md",
    "RELEASING.md": "releasing.md",
    "SECURITY.md": "security.md",
    "deploy/README.md": "containers.md",
    "examples/README.md": "examples/index.md",
    **{
        f"examples/{name}/README.md": f"examples/{name}.md"
        for name in ("clickstream", "features", "fraud", "iot", "security")
    },
    "tests/README.md": "tests.md",
    "tests/support/README.md": "tests-support.md",
}
_LINK: Final = re.compile(r"(\]\(\s*<?)([^)\s#>:]+)((?:#[^)\s>]*)?>?(?:\s+\"[^\"]*\")?\s*\))")
_FENCE: Final = re.compile(r"^\s*(?:```|~~~)")
_CODE: Final = re.compile(r"(`+)(?:(?!\1).)+\1")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/ and every other file that a page links to."""
    for source, place in PAGES.items():
        if (ROOT / source).is_file():
            files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    sources = [file.abs_src_path for file in files.documentation_pages()]
    decisions = _decisions(ROOT / "docs" / "adr")
    files.append(File.generated(config, "adr/index.md", content=decisions))
    for path in sources:
        here = Path(path or "").resolve()
        for target in _targets(here.read_text(encoding="utf-8")):
            linked = (here.parent / target).resolve()
            uri = _uri(linked)
            if uri and linked.is_file() and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(linked)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert links between files of the repository into links between files of the site."""
    if page.file.abs_src_path is None:
        return markdown
    here = Path(page.file.abs_src_path).resolve()
    base = PurePosixPath(page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        linked = (here.parent / link[2]).resolve()
        uri = _uri(linked)
        if not uri or files.get_file_from_path(uri) is None:
            return link[0]
        return link[1] + posixpath.relpath(uri, base.as_posix()) + link[3]

    lines, fenced = [], False
    for line in markdown.split("\n"):
        fenced ^= bool(_FENCE.match(line))
        lines.append(line if fenced else _outside_code(line, moved))
    return "\n".join(lines)


def _decisions(folder: Path) -> str:
    """Return an index of the decision records, newest first."""
    lines = ["# Decisions", "", "Decisions that later work lives with, newest first.", ""]
    for record in sorted(folder.glob("[0-9]*.md"), reverse=True):
        title = record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({record.name})")
    return "\n".join(lines) + "\n"


def _outside_code(line: str, moved: Callable[[re.Match[str]], str]) -> str:
    """Replace the links of a line, except in inline code."""
    parts, end = [], 0
    for code in _CODE.finditer(line):
        parts += [_LINK.sub(moved, line[end : code.start()]), code[0]]
        end = code.end()
    # A link's text may contain code; then its target is in the part after the code.
    return "".join([*parts, _LINK.sub(moved, line[end:])])


def _targets(text: str) -> set[str]:
    found, fenced = set(), False
    for line in text.split("\n"):
        fenced ^= bool(_FENCE.match(line))
        if not fenced:
            found |= {link[2] for link in _LINK.finditer(_CODE.sub("", line))}
    return found


def _uri(path: Path) -> str | None:
    """Return the path of a repository's file on the site."""
    if not path.is_relative_to(ROOT):
        return None
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return PAGES.get(name, f"source/{name}")

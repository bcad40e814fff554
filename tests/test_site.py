"""Tests that the site builds strictly, with links between pages inside and outside of docs/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents.pages import ROOT

LINKED = """# A page

## A heading: `code`, *stress* – and a dash

[code](../scripts/site_pages.py), [security](../SECURITY.md#rules), `[not](a/link.md)`,
[here](#a-heading-code-stress--and-a-dash)
"""


def _project(folder: Path, page: str) -> subprocess.CompletedProcess[str]:
    """Build a site of one page, with the settings and the hook of the repository."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    (folder / "mkdocs.yml").write_text(settings)
    (folder / "docs" / "adr").mkdir(parents=True)
    (folder / "docs" / "index.md").write_text(page)
    (folder / "docs" / "adr" / "0001-one.md").write_text("# 1. One decision\n")
    (folder / "SECURITY.md").write_text("# Security\n\n## Rules\n\n[back](docs/index.md)\n")
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "site_pages.py", folder / "scripts")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_links_lead_out_of_docs_and_back(tmp_path: Path) -> None:
    built = _project(tmp_path, LINKED)
    assert built.returncode == 0, built.stderr
    site = tmp_path / "build" / "site"
    page = (site / "index.html").read_text()
    assert 'href="source/scripts/site_pages.py"' in page
    assert 'href="security/#rules"' in page
    assert "[not](a/link.md)" in page
    assert (site / "source" / "scripts" / "site_pages.py").is_file()
    assert 'href=".."' in (site / "security" / "index.html").read_text()
    assert "1. One decision" in (site / "adr" / "index.html").read_text()


@pytest.mark.parametrize(
    "link", ["gone.md", "#gone", "../SECURITY.md#gone", "../GONE.md", "adr/", "/index.md"]
)
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, link: str) -> None:
    built = _project(tmp_path, f"# A page\n\n[a link]({link})\n")
    assert built.returncode != 0
    assert "WARNING" in built.stderr

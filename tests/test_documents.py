"""Markdown of the repository: links lead somewhere, pictures are shown."""

from __future__ import annotations

import re
from pathlib import Path

import markdown
import pytest

from scripts import reflow
from tests.support.documents.pages import ROOT, anchors, links, pages, slug

#: Bytes of the README, at most.
README_SIZE = 6144
#: Pages made by scripts, from code or from runs.
MADE = ("docs/benchmarks", "docs/cli.md", "docs/errors.md", "docs/rest.md", "docs/settings.md")
PICTURES = {".png", ".svg", ".jpg", ".gif"}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def test_links_lead_to_files_and_headings() -> None:
    broken, known = [], {}
    for page in pages():
        for link in links(page):
            place = f"{_name(page)}:{link.line} {_name(link.target)}"
            if not link.target.is_file():
                broken.append(place)
            elif link.anchor and link.target.suffix == ".md":
                if link.target not in known:
                    known[link.target] = anchors(link.target)
                if link.anchor not in known[link.target]:
                    broken.append(f"{place}#{link.anchor}")
    assert broken == []


def test_every_picture_is_shown_by_a_page() -> None:
    there = {p for p in (ROOT / "docs").rglob("*") if p.suffix in PICTURES}
    shown = {link.target for page in pages() for link in links(page)}
    assert len(there) > 10
    assert sorted(_name(picture) for picture in there - shown) == []


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").stat().st_size <= README_SIZE


def test_prose_is_wrapped() -> None:
    wide = [
        f"{_name(page)}:{line}"
        for page in pages()
        if not _name(page).startswith(MADE)
        for line in reflow.too_long(page.read_text(encoding="utf-8"))
    ]
    assert wide == [], "python scripts/reflow.py FILE wraps them"


def test_figures_of_the_page_on_reasons_stand_on_the_linked_pages() -> None:
    text = (ROOT / "docs" / "why.md").read_text(encoding="utf-8").partition("## Figures")[2]
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| \[[^]]+\]\(([\w.-]+\.md)#?[^)]*\) \|$", text, re.M
    )
    assert len(rows) >= 8
    missing = [
        f"{figure} of {page}"
        for _, figures, page in rows
        for figure in re.findall(r"\d[\d,.]*\d|\d", figures)
        if not _stands(figure, (ROOT / "docs" / page).read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_figures_of_the_readme_stand_on_the_linked_pages() -> None:
    points = re.findall(
        r"^- \*\*.*?(?=^- |\n\n)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S
    )
    found = {}
    for point in points:
        page = re.search(r"\(docs/([\w-]+\.md)(?:#([\w-]+))?\)", point)
        assert page is not None
        ratios = re.findall(r"(\d[\d.]*)\s+times", point)
        text = _section(page[1], page[2])
        found.update({f"{one} of {page[1]}": _rounded(one, text) for one in ratios})
    assert len(found) >= 6
    assert [one for one, stands in found.items() if not stands] == []


def test_the_readme_counts_the_cells_of_the_fault_grid() -> None:
    rows = re.findall(r"^\| `\w+` \|(.*)\|$", _section("recovery.md", "the-fault-grid"), re.M)
    cells = [cell for row in rows for cell in row.split("|")]
    assert all(cell.strip().startswith("exact") for cell in cells)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"killed at {len(rows)} points" in readme
    assert f"all {len(cells)} runs" in readme


def test_measured_figures_beside_other_systems_stand_on_the_linked_page() -> None:
    text = (ROOT / "docs" / "compared.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \|((?: [\d,.]+ \|){3})$", text, re.M)
    joins = _section("benchmarks-rivals.md", "five-tpc-h-joins")
    figures = [figure for row in rows for figure in re.findall(r"[\d,.]+", row)]
    assert len(figures) >= 15
    assert [figure for figure in figures if not _rounded(figure, joins)] == []
    ratios = text.partition("The ratios of the rounds:")[2].partition("Anabranch")[0]
    assert [r for r in re.findall(r"\d[\d.]*\d", ratios) if not _rounded(r, joins)] == []


def test_decimals_of_sentences_that_link_figures_stand_on_the_linked_page() -> None:
    found = {}
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = " ".join(page.read_text(encoding="utf-8").split())
        for link in re.finditer(r"\(\[figures\]\(([\w-]+\.md)(?:#([\w-]+))?\)[^)]*\)[.:]", text):
            sentence = re.split(r"[.*] (?=[A-Z0-9*`#])", text[: link.start()])[-1]
            for figure in _decimals(re.sub(r"targets?: [\d.]+", "", sentence)):
                stands = _rounded(figure, _section(link[1], link[2]))
                found[f"{figure} of {page.name} on {link[1]}#{link[2]}"] = stands
    assert len(found) >= 20
    assert [one for one, stands in found.items() if not stands] == []


def _decimals(sentence: str) -> list[str]:
    """Numbers with decimals; millions are written out."""
    pairs = re.findall(r"(?<![\d.#-])(\d+\.\d+)(?![\d.]*\d)( (?:to \d+ )?million)?", sentence)
    return [f"{float(number) * 1e6:.0f}" if million else number for number, million in pairs]


def _section(page: str, anchor: str | None) -> str:
    """Text of a page of docs/, or of its section with an anchor."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    if anchor is None:
        return text
    for heading in re.finditer(r"^(#+) (.+)$", text, re.M):
        if slug(heading[2]) == anchor:
            rest = text[heading.end() :]
            return re.split(rf"^#{{1,{len(heading[1])}}} ", rest, maxsplit=1, flags=re.M)[0]
    raise AssertionError(f"{page} has no section {anchor}")


def _rounded(figure: str, text: str) -> bool:
    """Whether a number of a text is a figure when rounded: to its decimals, or to two digits."""
    plain = figure.replace(",", "")
    decimals = len(plain.partition(".")[2])
    digits = max(len(plain.rstrip("0")), 2)
    return any(
        float(plain)
        == (round(float(one), decimals) if decimals else float(f"{float(one):.{digits}g}"))
        for one in re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))
    )


def _stands(figure: str, text: str) -> bool:
    """Whether a figure is in a text, with or without commas between thousands."""
    plain = text.replace(",", "")
    return (
        re.search(rf"(?<![\d.]){re.escape(figure.replace(',', ''))}(?![\d.]*\d)", plain) is not None
    )


WIDE = f"""\
# A heading stays {"x " * 50}

- An item, {"with words " * 10}and more
  than that, as of 100. {"With `code that stays whole` " * 4}

| a table | {"x " * 60}|
|---|---|

Words {"that are long " * 6}up to 12345 -
100. {"more " * 10}

```sh
a command {"x " * 60}
```

[{"a link " * 20}](https://example.org)
"""


def test_wrapping_changes_lines_only() -> None:
    wrapped = reflow.wrapped(WIDE)
    assert wrapped.split() == WIDE.split()
    assert reflow.wrapped(wrapped) == wrapped
    assert reflow.too_long(wrapped) == [1]
    assert _rendered(wrapped) == _rendered(WIDE)


def _rendered(text: str) -> str:
    return "".join(markdown.markdown(text, extensions=["tables", "fenced_code"]).split())


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("4. Complete from a stated moment", "4-complete-from-a-stated-moment"),
        ("`POST /v1/streams:test`", "post-v1streamstest"),
        ("What `up` does, when *something* dies", "what-up-does-when-something-dies"),
        ("Kafka – and others", "kafka--and-others"),
        ("See [recovery](docs/recovery.md)", "see-recovery"),
    ],
)
def test_anchors_of_headings(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n# A\n\n[a](#a-1) [b\nc](other.md#x) `[code](gone.md)`\n\n"
        '```\n[fenced](gone.md)\n```\n![p](p.png "P") [w](https://example.org/x.md)\n'
    )
    found = [(link.line, link.target.name, link.anchor) for link in links(page)]
    assert found == [(5, "page.md", "a-1"), (5, "other.md", "x"), (11, "p.png", "")]
    assert anchors(page) == {"a", "a-1"}

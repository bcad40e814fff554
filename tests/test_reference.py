"""Tests that pages made from the code are current, and everything on them has a meaning."""

from __future__ import annotations

import ast
import re

import pytest

from anabranch_contract.rest.planning.settings import SettingsIn
from scripts.reference import errors
from scripts.reference.__main__ import DOCS, pages
from scripts.reference.cli import commands
from scripts.reference.table import table


def test_the_pages_are_current() -> None:
    outdated = [name for name, text in pages().items() if (DOCS / name).read_text("utf-8") != text]
    assert outdated == [], "run make reference"


def test_every_command_and_option_has_a_help() -> None:
    found = dict(commands())
    assert len(found) > 40
    silent = [name for name, command in found.items() if not command.help]
    silent += [
        f"{name} {parameter.opts[0]}"
        for name, command in found.items()
        for parameter in command.params
        if not parameter.hidden and not parameter.help
    ]
    assert silent == []


def test_every_planning_setting_has_an_option() -> None:
    options = {parameter.name for parameter in dict(commands())["anabranch settings set"].params}
    assert set(SettingsIn.model_fields) - options == set()


def test_every_code_of_the_recovery_table_is_an_error() -> None:
    text = (DOCS / "recovery.md").read_text("utf-8").partition("## Failures and remedies")[2]
    named = set(re.findall(r"(?:refuses|ends|fails its stream)[^|]*?`([a-z]+(?:-[a-z]+)+)`", text))
    codes = {case.code for case in errors.cases()}
    assert len(named) > 20
    assert {name for name in named if not any(_fits(name, code) for code in codes)} == set()


def test_every_code_of_the_page_on_symptoms_is_an_error() -> None:
    text = (DOCS / "troubleshooting.md").read_text("utf-8")
    cells = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", text, re.MULTILINE)
    named = {code for cell in cells for code in re.findall(r"`([a-z-]+)`", cell)}
    codes = {case.code for case in errors.cases()}
    assert len(named) > 25
    assert {name for name in named if not any(_fits(name, code) for code in codes)} == set()


def _fits(name: str, code: str) -> bool:
    return re.fullmatch(re.escape(code).replace("…", "[a-z-]+"), name) is not None


def test_the_index_for_language_models_has_all_pages() -> None:
    text = pages()["llms.txt"]
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\)(: .+)?$", text, re.MULTILINE)
    assert {f"{path.stem}/" for path in DOCS.glob("*.md")} - {place for place, _ in listed} == {
        "index/"
    }
    assert [place for place, about in listed if not about] == ["adr/"]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ('E("a-b", "it is so", remedy="go")', [("a-b", "it is so", "go")]),
        ('E("a-b" if x else "c-d", f"{x} is")', [("a-b", "… is", ""), ("c-d", "… is", "")]),
        ('E(f"bad-{kind}", "it " + why)', [("bad-…", "it …", "")]),
        ('refused("a-b", "with words")', [("a-b", "with words", "")]),
        ('lookup("a-b", "word")', []),
        ("E(code, message)", []),
    ],
)
def test_codes_are_collected(call: str, found: list[tuple[str, str, str]]) -> None:
    (statement,) = ast.parse(call).body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    cases = errors._raised(errors._cases("service", statement.value), {"E"})
    assert sorted((case.code, case.message, case.remedy) for case in cases) == found


def test_tables() -> None:
    assert table(("a", "b"), [("1 |", "2\n3")]) == ["| a | b |", "|---|---|", "| 1 \\| | 2 3 |", ""]
    assert table(("a",), []) == []

"""Tests of the tree's limits: sizes, cycles, names, words. Accepted violations may only decrease.

``python -m tests.support.structure`` prints the differences, ``--shrink`` lowers the list,
``--words AREA`` prints the texts to rewrite. CONTRIBUTING.md, "Limits", has the reasons.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.structure import accepted, code, words


@pytest.mark.parametrize("rule", accepted.RULES)
def test_the_tree_has_the_accepted_violations_only(rule: str) -> None:
    measured = accepted.RULES[rule]()
    found = accepted.compare(rule, measured, accepted.read().get(rule, {}))
    assert found == [], "CONTRIBUTING.md, Limits, has the remedies"


def test_every_accepted_violation_has_a_rule() -> None:
    assert accepted.read().keys() <= accepted.RULES.keys()


def test_commit_subjects() -> None:
    assert words.poor_subjects() == []


@pytest.mark.parametrize(
    ("size", "limit", "difference"),
    [
        (3, 2, "a rule: k has 3, accepted are 2"),
        (2, 2, None),
        (1, 2, "a rule: k has 1 only, lower 2 with --shrink"),
        (0, 2, "a rule: k has 0 only, lower 2 with --shrink"),
        (1, 0, "a rule: k has 1, accepted are 0"),
    ],
)
def test_sizes_may_only_shrink(size: int, limit: int, difference: str | None) -> None:
    measured = {"k": size} if size else {}
    listed = {"k": limit} if limit else {}
    expected = [] if difference is None else [difference]
    assert accepted.compare("a rule", measured, listed) == expected


@pytest.mark.parametrize(
    "text",
    [
        "By what a batch goes.",
        "What two trees are alike by.",
        "Those that wait.",
        "Stores, of which some are told apart.",
        "A row goes by its key.",
    ],
)
def test_suspects_of_a_text(text: str) -> None:
    assert words.suspects(text) != []


@pytest.mark.parametrize(
    "text",
    [
        "Journal entry of a batch: epoch, ruleset, input offsets.",
        "What does a row cost?",
        "Return the stores that an edge probes.",
    ],
)
def test_texts_without_suspects(text: str) -> None:
    assert words.suspects(text) == []


def test_deferred_and_type_imports_make_a_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "cycled"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cycled.b import B\n"
    )
    (package / "b.py").write_text("def f():\n    from cycled import c\n")
    (package / "c.py").write_text("import cycled.a\n")
    (package / "d.py").write_text("import cycled.a\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert code.import_cycles(("cycled",)) == {"cycled.a cycled.b cycled.c": 3}


def test_packages_are_all_there() -> None:
    assert {path.split("/")[0] for path in code.sources()} == set(code.PACKAGES)

"""Versions, of this environment and of others."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path

import pytest

from anabranch_client.doctor import packages
from anabranch_client.doctor.findings import Verdict
from anabranch_client.doctor.packages import check_packages, check_python, installed, within

ROOT = Path(__file__).resolve().parents[3]


def test_what_is_installed_and_what_is_not() -> None:
    found = installed("anabranch", "Python", "no-such-package")
    assert found["Python"] == platform.python_version()
    assert found["anabranch"]
    assert found["no-such-package"] is None


def test_this_environment_is_as_it_should_be() -> None:
    assert check_python().verdict is Verdict.OK
    found = check_packages()
    assert found.verdict is Verdict.OK, found.said
    assert "pyspark 4." in found.said
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(found.facts["versions"]) == len(wanted)
    assert all(found.facts["versions"].values())


@pytest.mark.parametrize(
    ("version", "bounds", "holds"),
    [
        ("4.3.0", ">=4.3,<4.4", True),
        ("4.4.0", ">=4.3,<4.4", False),
        ("4.4.0.dev1", ">=4.3,<4.4", False),
        ("4", ">=4.0", True),
        ("17.9", ">=18,<27", False),
        ("24.4", ">=24.4", True),
        ("1.0", "", True),
    ],
)
def test_bounds(version: str, bounds: str, holds: bool) -> None:
    assert within(version, bounds) is holds


def test_all_bounds_of_the_project_are_understood() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in (*project["dependencies"], f"python{project['requires-python']}"):
        match = packages._REQUIREMENT.fullmatch(requirement)
        assert match is not None
        assert all(packages._BOUND.fullmatch(bound) for bound in match[2].split(","))
        assert not within("0.0.1", match[2])


@pytest.mark.parametrize(
    ("asked", "verdict", "said"),
    [
        (["rich<1", "rich<1; extra == 'client'"], Verdict.FAIL, "not <1"),
        (["no-such<9", "no-such<9; extra == 'client'"], Verdict.FAIL, "no-such is not installed"),
        (["no-such<9"], Verdict.WARN, "no-such is not installed"),
        ([], Verdict.WARN, "not installed"),
    ],
)
def test_other_environments(
    asked: list[str], verdict: Verdict, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "requires", lambda _: asked)
    found = check_packages()
    assert (found.verdict, said in found.said) == (verdict, True), found.said
    assert found.remedy

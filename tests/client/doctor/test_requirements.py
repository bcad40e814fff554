"""Tests of a client installed alone: its imports at the start, and commands without a pipeline's
packages.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from anabranch_client.cli.app import COMMANDS, loaded
from tests.client.conftest import JOIN

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Runs the command line without the packages of the first argument; the last line on standard error
#: names the imported packages.
PROGRAM = """
import sys
absent = sys.argv.pop(1).split(",")
sys.modules.update(dict.fromkeys(absent))
from anabranch_client.cli.app import app
try:
    app(prog_name="anabranch")
finally:
    found = {name.partition(".")[0] for name, module in sys.modules.items() if module is not None}
    print(*sorted(found - {"__main__", *sys.stdlib_module_names}), file=sys.stderr)
"""


def _imported_as(requirements: Iterable[str]) -> set[str]:
    """Return the top-level modules of required packages."""
    names = {re.split(r"[<>=\[]", text)[0].lower() for text in requirements} - {"anabranch"}
    return {
        module
        for module, owners in packages_distributions().items()
        if names & {owner.lower() for owner in owners}
    }


#: Modules of a whole pipeline's packages that a client alone does not have.
HEAVY = _imported_as(
    requirement
    for extra in ("planner", "service", "runtime", "tables", "all")
    for requirement in PROJECT["optional-dependencies"][extra]
) - _imported_as(PROJECT["dependencies"])


def slim(*arguments: str, url: str = "") -> tuple[int, str, str, set[str]]:
    """Run a command of the client alone; return exit code, output, errors, and
    imported packages.
    """
    given = ("--url", url) if url else ()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(sorted(HEAVY)), *arguments, *given],
        capture_output=True,
        text=True,
        check=False,
    )
    *errors, imported = done.stderr.splitlines()
    return done.returncode, done.stdout, "\n".join(errors), set(imported.split())


def test_the_packages_of_a_pipeline_are_known() -> None:
    assert {"pyspark", "numba", "ortools", "sqlglot", "redis", "pyarrow", "fastapi"} <= HEAVY
    assert not HEAVY & {"httpx", "pydantic", "typer", "rich", "yaml", "psutil"}


def test_the_version_needs_the_command_line_only() -> None:
    code, out, errors, imported = slim("--version")
    assert (code, errors) == (0, "")
    assert out.startswith("anabranch ")
    assert "pyspark" in out
    # typer and its own packages
    assert imported <= {
        "anabranch_client",
        "typer",
        "annotated_doc",
        "shellingham",
        "_distutils_hack",
    }


def test_the_help_needs_no_command() -> None:
    code, out, errors, imported = slim("--help")
    assert (code, errors) == (0, "")
    for name, (_, line) in COMMANDS.items():
        assert name in out
        assert line.partition(",")[0][:40] in " ".join(re.findall(r"[^\s│]+", out))
    assert not imported & {"anabranch_contract", "httpx", "pydantic", "msgspec", "yaml", "psutil"}


#: Command -> the modules with REST bodies that it imports.
BODIES = {
    "health": "system",
    "profile": "names normalised profile",
    "query list": "normalised profile queries slo",
    "query show q": "normalised profile queries slo",
    "stream list": "planning.statistics streams",
}
#: Modules that no short command needs: importing one takes as long as the rest of the start.
SLOW = {"asyncio", "yaml", "anabranch_client.doctor.requirements"}


@pytest.mark.parametrize("command", BODIES)
def test_a_command_imports_the_bodies_of_its_own_routes_only(command: str) -> None:
    program = PROGRAM.replace('name.partition(".")[0]', "name").replace(
        ", *sys.stdlib_module_names", ""
    )
    arguments = (*command.split(), "--url", "http://127.0.0.1:1")
    done = subprocess.run(
        [sys.executable, "-c", program, "none", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    imported = set(done.stderr.splitlines()[-1].split())
    rest = "anabranch_contract.rest"
    used = {name.removeprefix(f"{rest}.") for name in imported if name.startswith(f"{rest}.")}
    assert used - {"documents", "planning"} == set(BODIES[command].split())
    assert not imported & SLOW


def test_every_command_is_found_by_its_name() -> None:
    for name in COMMANDS:
        assert loaded(name).name == name


def test_commands_over_rest_need_no_pipeline(url: str, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(f"queries:\n  b:\n    sql: {JOIN}\n")
    stream = ("--column", "order_id:bigint", "--column", "customer_id:bigint")
    for arguments in (
        ("stream", "add", "orders", *stream),
        ("stream", "add", "customers", "--column", "customer_id:bigint", "--column", "city:string"),
        ("query", "explain", JOIN),
        ("query", "add", "--name", "a", JOIN),
        ("apply", "-f", str(tmp_path / "q.yaml"), "--yes"),
        ("query", "show", "b"),
        ("plan", "dry-run", "--drop", "a"),
        ("settings", "show"),
        ("epochs", "list"),
        ("support-bundle", "--out", str(tmp_path / "b.zip")),
    ):
        code, _, errors, imported = slim(*arguments, url=url)
        assert code == 0, errors
        assert not imported & HEAVY
    code, out, errors, imported = slim("query", "list", url=url)
    assert (code, errors) == (0, "")
    assert "a" in out
    assert not imported & (HEAVY | {"psutil"})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("up",), "anabranch up needs"),
        (("demo",), "anabranch demo needs"),
        (("replay", "there.yaml"), "anabranch replay needs"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(arguments: tuple[str, ...], told: str) -> None:
    code, out, errors, _ = slim(*arguments)
    assert (code, out) == (2, "")
    assert errors.startswith(f"error: {told}")
    assert errors.endswith("(pip install 'anabranch[all]')")


def test_rows_of_parquet_files_need_a_library(url: str, tmp_path: Path) -> None:
    assert slim("stream", "add", "s", "--column", "k:int", url=url)[0] == 0
    code, _, errors, _ = slim("stream", "push", "s", str(tmp_path / "r.parquet"), url=url)
    assert code == 2
    assert errors == (
        "error: anabranch stream needs pyarrow, which is not installed "
        "(pip install 'anabranch[all]')"
    )

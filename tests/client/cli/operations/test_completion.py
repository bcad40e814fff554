"""Tests of shell completion in real shells, with names from a real service."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch_client.rest.api import Client
from tests.client.conftest import JOIN

#: Bash's steps when Tab is pressed, for the words in its arguments.
BASH = """
anabranch() { "$PYTHON" -m anabranch_client "$@"; }
env() { command env "${@:1:$#-1}" "$PYTHON" -m anabranch_client; }
eval "$(anabranch completion bash)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"$(complete -p anabranch | sed 's/.*-F \\([^ ]*\\) .*/\\1/')" anabranch
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(url: str, *words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", "anabranch", *words],
        env={"PYTHON": sys.executable, "PYTHONPATH": ":".join(sys.path), "ANABRANCH_URL": url}
        | {"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def test_commands_and_names_are_completed_in_bash(url: str, shop: Client) -> None:
    shop.create_query(JOIN, name="late-orders")
    shop.create_query(JOIN, name="later")
    assert "query" in completed(url, "q")
    assert "families" in completed(url, "query", "fam")
    assert completed(url, "query", "show", "late") == ["late-orders", "later"]
    assert completed(url, "query", "rm", "late-") == ["late-orders"]
    assert completed(url, "stream", "show", "") == ["customers", "orders"]


def test_nothing_is_completed_without_a_service() -> None:
    assert completed("http://127.0.0.1:1", "query", "show", "l") == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_of_a_shell_is_written(shell: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anabranch_client", "completion", shell]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "_ANABRANCH_COMPLETE=complete_" in done.stdout
    assert done.stderr == ""
    found = shutil.which(shell)
    if found is not None:
        (tmp_path / "script").write_text(done.stdout)
        subprocess.run([found, "-n", str(tmp_path / "script")], check=True)

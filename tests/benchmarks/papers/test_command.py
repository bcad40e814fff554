"""Tests of ``python -m benchmarks.papers``: one subcommand per paper, and one per command of a
paper.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.papers.__main__ import PAPERS, main


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_lists_its_commands(paper: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], [paper]):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--help"])
        assert ended.value.code == 0
    assert PAPERS[paper].ABOUT in " ".join(capsys.readouterr().out.split())


def test_a_benchmark_receives_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jaqpot", "forests", "--json", "--forests", "3"]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert (entry["part"], entry["settings"]["forests"]) == ("forests", 3)


def test_a_report_without_figures_fails(tmp_path: Path) -> None:
    assert main(["jaqpot", "report", "--docs", str(tmp_path)]) == 1


@pytest.mark.parametrize("arguments", [[], ["jaqpot"], ["jaqpot", "nothing"], ["nothing"]])
def test_an_unknown_command_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2

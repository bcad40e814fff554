"""Tests of a replay's output folder: its owner, and the files that a replay replaces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch_client.errors import ProcessError, UsageError
from anabranch_client.replay.folder import MARK, output_folder, refuse_used
from anabranch_client.supervise.home import held

_WRITE = """
import sys
from pathlib import Path
from anabranch_client.replay.folder import output_folder
with output_folder(Path(sys.argv[1])):
    print("writes", flush=True)
    sys.stdin.read()
"""


def write(out: Path) -> None:
    """Write the files of a finished replay."""
    with output_folder(out) as folder:
        for name in ("logs", "state", "redis"):
            (folder / name).mkdir()
        (folder / "service.port").write_text("1")
        (folder / "results" / "q").mkdir()
        (folder / "report.json").write_text("{}")


@pytest.mark.parametrize("there", [True, False])
def test_a_new_folder_is_used_and_working_data_go(there: bool, tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    if there:
        out.mkdir(parents=True)
    write(out)
    assert sorted(p.name for p in out.iterdir()) == [MARK, "logs", "report.json", "results"]


def test_an_earlier_replay_is_replaced_by_force_only_and_nothing_else_is(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    elsewhere = tmp_path.with_name("elsewhere")
    (elsewhere / "kept").mkdir(parents=True)
    (tmp_path / "redis").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="--force") as caught:
        write(tmp_path)
    assert (caught.value.field, caught.value.exit_code) == ("--out", 2)
    assert (tmp_path / "results" / "q").is_dir()
    with output_folder(tmp_path, force=True):
        names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [MARK, "notes.txt", "results"]
    assert list((tmp_path / "results").iterdir()) == []
    assert (elsewhere / "kept").is_dir()
    # Without results made since, nothing can be lost.
    (tmp_path / "results").rmdir()
    refuse_used(tmp_path, force=False)


@pytest.mark.parametrize("names", [["report.json"], ["results", "state"], list("abcd")])
def test_what_no_replay_made_is_never_touched(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    for force in (False, True):
        with (
            pytest.raises(UsageError, match="no replay made it"),
            output_folder(tmp_path, force=force),
        ):
            pass
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names)


def test_the_folder_of_a_pipeline_is_never_used(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(ProcessError, match="in use by `anabranch up`"):
        refuse_used(tmp_path, force=True)
    with pytest.raises(UsageError, match=r"up\.lock"):
        refuse_used(tmp_path, force=True)


def test_two_replays_do_not_share_a_folder(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITE, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "writes\n"
        with pytest.raises(UsageError, match="another replay"), output_folder(tmp_path, force=True):
            pass
        assert (tmp_path / "results").is_dir()
        other.communicate("")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(UsageError, match="--out") as caught, output_folder(out):
            pass
        assert caught.value.remedy

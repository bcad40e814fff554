"""Tests of state backends (umjoin) that are killed while writing, or have damaged files."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch_runtime.errors import StateError
from benchmarks.umjoin.backends.interface import BackendKind
from tests.support.surroundings.backend_kills import BATCHES, TABLES, look, write
from tests.support.surroundings.backends import KINDS, opened
from tests.support.surroundings.folders import passing_folder


def kills(kind: BackendKind, mode: str, rounds: int | None = None) -> tuple[int, list[int]]:
    """Return the number of killed writers, and the last batch that each reported."""
    with passing_folder() as folder:
        command = [
            *(sys.executable, "-W", "ignore", "-m", "tests.support.surroundings.backend_kills"),
            *(kind, str(folder), mode),
        ]
        if rounds is not None:
            command.append(str(rounds))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["kills"], found["lasts"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_of_the_first_steps_leaves_the_last_commit(kind: BackendKind) -> None:
    killed, lasts = kills(kind, "steps", 8)
    assert killed == 8 if kind is not BackendKind.ROCKSDB else killed > 3
    assert -1 in lasts


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_step_leaves_the_last_commit(kind: BackendKind) -> None:
    """Kill at every step of each commit and, if there are merges, of each merge."""
    killed, lasts = kills(kind, "steps")
    assert killed > 2 * BATCHES
    assert set(range(-1, BATCHES - 1)) <= set(lasts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_time_leaves_the_last_commit(kind: BackendKind) -> None:
    killed, _ = kills(kind, "times", 60)
    assert killed > 20


#: One table without expiry, so that each part of a pack is used. (Unused parts are never read.)
ONE = {"r": TABLES["r"]}


def _written(folder: Path, kind: BackendKind) -> None:
    with opened(folder, ONE, kind) as backend:
        for batch in range(BATCHES):
            write(backend, batch)
            backend.commit(batch)


def _open_and_verify(folder: Path, kind: BackendKind) -> None:
    with opened(folder, ONE, kind) as backend:
        backend.verify()


def _flips(kind: BackendKind, rounds: int, seed: int) -> None:
    """Flip random bits and truncate files; opening or verifying must detect it."""
    draw = random.Random(seed)
    with passing_folder() as folder:
        _written(folder / "s", kind)
        files = sorted(p for p in (folder / "s").rglob("*") if p.is_file() and p.name != "lock")
        for _ in range(rounds):
            path = draw.choice(files)
            content = path.read_bytes()
            if draw.random() < 0.2:
                path.write_bytes(content[: draw.randrange(len(content))])
            else:
                at = draw.randrange(len(content))
                flipped = content[at] ^ (1 << draw.randrange(8))
                path.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
            with pytest.raises(StateError):
                _open_and_verify(folder / "s", kind)
            path.write_bytes(content)
        with opened(folder / "s", ONE, kind) as backend:
            look(backend)


@pytest.mark.parametrize("kind", [BackendKind.LSM, BackendKind.MEMORY])
def test_a_flipped_bit_or_a_cut_file_is_found(kind: BackendKind) -> None:
    _flips(kind, 60, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BackendKind.LSM, BackendKind.MEMORY])
def test_every_of_many_flipped_bits_is_found(kind: BackendKind) -> None:
    _flips(kind, 3000, seed=2)


@pytest.mark.parametrize("kind", [BackendKind.LSM, BackendKind.MEMORY])
def test_a_lost_file_is_missed(kind: BackendKind) -> None:
    with passing_folder() as folder:
        _written(folder / "s", kind)
        for path in sorted((folder / "s").rglob("*.*")):
            content = path.read_bytes()
            path.unlink()
            with pytest.raises(StateError):
                opened(folder / "s", ONE, kind)
            path.write_bytes(content)
        opened(folder / "s", ONE, kind).close()

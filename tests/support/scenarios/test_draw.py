"""The scenario generator: equal seeds give equal scenarios, and the short list has everything."""

from __future__ import annotations

from pathlib import Path

from tests.support.scenarios.draw import generate
from tests.support.scenarios.features import WANTED, features
from tests.support.scenarios.seeds import FEW


def test_equal_seeds_give_equal_files(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        generate(3, tmp_path / folder)
    names = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert "SCENARIO.yaml" in names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_the_short_list_has_everything_in_it(tmp_path: Path) -> None:
    found: set[str] = set()
    for seed in FEW:
        found |= features(generate(seed, tmp_path / str(seed)))
    assert found >= WANTED, sorted(WANTED - found)

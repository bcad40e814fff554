"""Tests that equal seeds give equal scenarios, and that the short list has all features."""

from __future__ import annotations

from pathlib import Path

from anabranch_planner.passes import parse_sql
from tests.support.oracles.oracle import OracleQuery
from tests.support.plain_service import stream_of
from tests.support.scenarios.crowded import KINDS, MOST, befallen, generate_different, kind_of
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.features import WANTED, features
from tests.support.scenarios.file import read_scenario
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


def test_crowds_have_everything_that_may_befall_them(tmp_path: Path) -> None:
    assert {kind_of(seed) for seed in range(40)} == set(KINDS)
    scripts = [
        befallen(seed, Generated(tmp_path, {"q": OracleQuery((), (), ())})) for seed in range(60)
    ]
    for feature in ("faults", "deaths", "restarts", "revised", "rationed", "owed", "past", "odd"):
        having = sum(bool(getattr(script, feature)) for script in scripts)
        assert 5 < having < 55, feature
    assert any(max(script.hosts) > 2 for script in scripts)
    assert any(script.rationed and script.revised and script.hot for script in scripts)


def test_no_two_filters_of_a_crowd_are_equal(tmp_path: Path) -> None:
    generated = generate_different(24, tmp_path)
    assert len(generated.queries) == MOST
    scenario = read_scenario(generated.path)
    streams = {name: stream_of(scenario, name) for name in scenario.streams}
    seen = set[str]()
    for name, entry in scenario.queries.items():
        query = parse_sql(name, entry.sql, streams, entry.window)
        for relation in query.relations:
            assert not relation.filter or relation.id not in seen, relation
            seen.add(relation.id)

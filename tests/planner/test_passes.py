"""Tests of every planning pass against golden texts; ``make golden`` renews them."""

from __future__ import annotations

from tests.planner.golden_passes import HERE, written


def test_passes_read_as_recorded() -> None:
    found = dict(written())
    recorded = {p.name: p.read_text("utf-8") for p in (HERE / "passes").iterdir()}
    assert found.keys() == recorded.keys()
    for name, text in found.items():
        assert text == recorded[name], f"{name} differs: run 'make golden' and review the diff"

"""Tests of the files beside results that say how complete they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_contract.protocol.activations import Activation
from anabranch_runtime.sinks import completeness
from anabranch_runtime.sinks.completeness import CompletenessFiles
from tests.support.oracles.ledger import read_completeness


def test_a_query_of_which_nothing_was_withheld_has_no_file(tmp_path: Path) -> None:
    files = CompletenessFiles(tmp_path)
    files.show({"all": Activation(0, {}, results=5)}, 3)
    assert list(tmp_path.iterdir()) == []
    assert read_completeness(tmp_path, "all") is None


def test_what_is_missing_is_said_as_of_a_batch(tmp_path: Path) -> None:
    files = CompletenessFiles(tmp_path)
    files.show({"q": Activation(0, {}, results=30, withheld=6.0, owed=4.0, blind=1)}, 3)
    found = read_completeness(tmp_path, "q")
    assert found is not None
    assert (found.batch, found.results, found.completeness) == (3, 30, 0.75)
    assert (found.withheld, found.owed, found.blind, found.caught_up) == (6.0, 4.0, 1, 0)


def test_files_are_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    files = CompletenessFiles(tmp_path)

    def batch() -> int:
        found = read_completeness(tmp_path, "q")
        assert found is not None
        return found.batch

    files.show({"q": Activation(0, {}, results=30, withheld=6.0)}, 3)
    more = {"q": Activation(0, {}, results=31, withheld=6.0)}
    files.show(more, 4)
    assert batch() == 3
    files.show(more, 4, at_once=True)
    assert batch() == 4
    now += completeness.INTERVAL
    # Nothing has changed.
    files.show(more, 5)
    assert batch() == 4
    # The next driver writes the figures of its state at once.
    CompletenessFiles(tmp_path).begin(more, 6)
    assert batch() == 6
    # A state rolled back to before anything was withheld does not know of it.
    CompletenessFiles(tmp_path).begin({"q": Activation(0, {}, results=1)}, 1)
    assert read_completeness(tmp_path, "q") is None

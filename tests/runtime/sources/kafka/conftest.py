"""Patience with a broker that is busy beside other tests."""

from __future__ import annotations

import pytest

from anabranch_runtime.sources.kafka import feed, reading

#: Seconds.
PATIENCE = 60.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a broker's answers, as a pipeline does that looks again in its next turn."""
    monkeypatch.setattr(feed, "LOOKING", PATIENCE)
    monkeypatch.setattr(feed, "REQUEST", PATIENCE)
    monkeypatch.setattr(reading, "PATIENCE", PATIENCE)

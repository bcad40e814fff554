"""Fixtures of Kafka source tests: long timeouts for a busy broker."""

from __future__ import annotations

import pytest

from anabranch_runtime.sources.kafka import feed, reading

#: Timeout in seconds.
PATIENCE = 60.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for a broker's responses, as a pipeline does by retrying."""
    monkeypatch.setattr(feed, "LOOKING", PATIENCE)
    monkeypatch.setattr(feed, "REQUEST", PATIENCE)
    monkeypatch.setattr(reading, "PATIENCE", PATIENCE)

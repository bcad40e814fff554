"""Fixtures: feeds of lake tables that check for new versions at every call."""

from __future__ import annotations

import pytest

from anabranch_runtime.sources.lake import feed
from anabranch_runtime.sources.lake.iceberg import IcebergTable
from anabranch_runtime.sources.lake.table import LakeTable


@pytest.fixture(autouse=True)
def _without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LakeTable, "rest", 0.0)
    monkeypatch.setattr(IcebergTable, "rest", 0.0)
    monkeypatch.setattr(feed, "_REST_FACTOR", 0.0)

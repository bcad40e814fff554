"""Tests of parsing Spark's offset files of ingest queries."""

from __future__ import annotations

import json

import pytest

from anabranch_runtime.errors import StateError
from anabranch_runtime.sources.ingest.checkpoints import source_offsets


def text(**offsets: object) -> str:
    """Return offsets as Spark writes them."""
    lines = [f"{name}:{json.dumps(offset)}" for name, offset in offsets.items()]
    return "\n".join(["v2", '{"batchWatermarkMs":0}', *lines])


def test_offsets_are_read_by_the_names_of_their_sources() -> None:
    assert source_offsets(None) == {}
    assert source_offsets(text()) == {}
    nested = {"r-1": {"a:b": ["1-2", 3]}}
    assert source_offsets(text(feeds=nested, x={"logOffset": 1})) == {
        "feeds": nested,
        "x": {"logOffset": 1},
    }
    assert source_offsets(text() + "\nfeeds:-") == {}


@pytest.mark.parametrize("bad", ["", "v1\n{}\n{}", "v2\n{}\nfeeds", "v2\n{}\nfeeds:{", "nothing"])
def test_offsets_of_another_form_are_refused(bad: str) -> None:
    with pytest.raises(StateError) as caught:
        source_offsets(bad)
    assert caught.value.code == "unknown-offsets"
    assert caught.value.remedy

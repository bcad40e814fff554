"""Tests of the shares of frequent values in problem files."""

from __future__ import annotations

import pytest

from anabranch_contract.queries.joins import RelationId
from anabranch_planner.command.problem_statistics import frequent_values

R, S = RelationId("R"), RelationId("S")


def test_equal_texts_have_equal_numbers() -> None:
    stated = {("R", "a"): {"x": 10.0, "y": 40.0}, ("S", "b"): {"y": 5.0}}
    found = frequent_values(stated, {R: 100.0, S: 10.0})
    assert found.keys() == {(R, "a"), (S, "b")}
    known = found[R, "a"]
    assert known.texts == ("y", "x")
    assert known.arriving == known.stored == pytest.approx((0.4, 0.1))
    assert known.hashes[0] == found[S, "b"].hashes[0]
    assert known.hashes[0] != known.hashes[1]


def test_streams_without_tuples_have_no_shares() -> None:
    assert frequent_values({("R", "a"): {"x": 0.0}}, {R: 0.0}) == {}
    assert frequent_values({("R", "a"): {"x": 1.0}}, {}) == {}

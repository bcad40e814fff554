"""Tests that derived values of the state are recomputed only for entries that are other objects."""

from __future__ import annotations

from anabranch_runtime.state.derived import Derived


def test_entries_of_other_objects_alone_are_computed_again() -> None:
    seen: list[str] = []

    def length(name: str, value: list[int]) -> int:
        seen.append(name)
        return len(value)

    derived = Derived(length)
    one, two = [1], [1, 2]
    assert derived.of({"a": one, "b": two}) == {"a": 1, "b": 2}
    assert derived.of({"b": two, "a": [1, 2, 3], "c": one}) == {"b": 2, "a": 3, "c": 1}
    assert derived.of({"a": one}) == {"a": 1}
    assert derived.of({"b": two}) == {"b": 2}
    assert seen == ["a", "b", "a", "c", "a", "b"]

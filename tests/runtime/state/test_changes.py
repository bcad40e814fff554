"""Tests of changes between states: applied to the JSON of one, they give that of the other."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract import codec
from anabranch_runtime.state.changes import StateChange, applied, difference, renewed, spliced


@dataclass(frozen=True, slots=True)
class Leaf:
    """A small record, whose lists are compared by identity."""

    number: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """A record whose fields are compared."""

    leaves: tuple[Leaf, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Root:
    """A record with every kind of part that a state has."""

    count: int = 0
    share: float = 0.0
    leaf: Leaf | None = None
    leaves: tuple[Leaf, ...] = ()
    counts: tuple[int, ...] = ()
    by_name: dict[str, Leaf] = field(default_factory=dict)
    nested: dict[str, dict[str, int]] = field(default_factory=dict)
    pairs: tuple[tuple[int, int], ...] = ()
    branch: Branch | None = None
    branches: dict[str, Branch] = field(default_factory=dict)


INSIDE = (Root, Branch)
NAMES = st.sampled_from(["", "a", "b", "c.d", "Größe", '"'])
NUMBERS = st.integers(-2, 2)
LEAVES = st.builds(Leaf, st.none() | NUMBERS, NAMES)
BRANCHES = st.builds(Branch, st.lists(LEAVES, max_size=4).map(tuple), NUMBERS)
ROOTS = st.builds(
    Root,
    NUMBERS,
    st.floats(allow_nan=False, allow_infinity=False),
    st.none() | LEAVES,
    st.lists(LEAVES, max_size=6).map(tuple),
    st.lists(NUMBERS, max_size=4).map(tuple),
    st.dictionaries(NAMES, LEAVES),
    st.dictionaries(NAMES, st.dictionaries(NAMES, NUMBERS)),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3).map(tuple),
    st.none() | BRANCHES,
    st.dictionaries(NAMES, BRANCHES),
)


def later(before: Root, after: Root, draw: Random) -> Root:
    """Return ``after`` with the objects of ``before`` in about half of its parts."""

    def some(known: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
        return fresh | {name: value for name, value in known.items() if draw.random() < 0.5}

    leaves = [leaf for leaf in before.leaves if draw.random() < 0.7]
    for leaf in after.leaves:
        leaves.insert(draw.randrange(len(leaves) + 1), leaf)
    if draw.random() < 0.2:
        draw.shuffle(leaves)
    found = replace(
        after,
        leaves=tuple(leaves),
        by_name=some(before.by_name, after.by_name),
        nested=some(before.nested, after.nested),
        branches=some(before.branches, after.branches),
    )
    kept = [name for name in Root.__match_args__ if draw.random() < 0.3]
    return replace(found, **{name: getattr(before, name) for name in kept})


def stored(change: StateChange) -> StateChange:
    """Return the change as a file has it."""
    return codec.loads(codec.dumps(change), StateChange)


@given(st.lists(ROOTS, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_a_sequence_of_changes_gives_every_value(drawn: list[Root], draw: Random) -> None:
    values = [drawn[0]]
    for one in drawn[1:]:
        values.append(later(values[-1], one, draw))
    tree = codec.to_json(values[0])
    for before, after in itertools.pairwise(values):
        text = json.dumps(tree)
        tree, last = applied(tree, stored(difference(before, after, INSIDE))), tree
        assert tree == codec.to_json(after)
        assert json.dumps(last) == text, "the value before has changed"
        assert codec.from_json(tree, Root) == after


@given(ROOTS, ROOTS, st.randoms(use_true_random=False))
def test_a_process_with_the_former_value_makes_the_next_of_its_parts(
    before: Root, fresh: Root, draw: Random
) -> None:
    after = later(before, fresh, draw)
    change = difference(before, after, INSIDE)
    text = codec.dumps(before)
    found = renewed(before, change)
    assert found == after
    assert codec.dumps(before) == text, "the value before has changed"
    for name in before.by_name.keys() & after.by_name.keys():
        same = before.by_name[name] == after.by_name[name]
        assert (found.by_name[name] is before.by_name[name]) is same


@given(ROOTS)
def test_an_equal_value_of_other_objects_is_no_change(one: Root) -> None:
    other = codec.from_json(codec.to_json(one), Root)
    assert difference(one, other, INSIDE) == difference(one, one, INSIDE) == StateChange({}, {}, ())


def test_a_list_of_kept_elements_is_not_written_again() -> None:
    a, b, c, d = (Leaf(n) for n in range(4))
    fresh = Leaf(9, "merged")
    found = difference(Root(leaves=(a, b, c, d)), Root(leaves=(a, fresh, d, Leaf(7))), INSIDE)
    assert found.changes["leaves"].splices == ((1, 2, (fresh,)), (1, 0, (Leaf(7),)))
    assert not found.values


def test_one_entry_among_many_is_written_alone() -> None:
    many = {str(n): Leaf(n) for n in range(1000)}
    found = difference(Root(by_name=many), Root(by_name=many | {"7": Leaf(8)}), INSIDE)
    text = codec.dumps(found)
    assert text == '[{},{"by_name":[{"7":{"number":8,"text":""}},{},[],[]]},[],[]]'


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ({}, StateChange({}, {"a": StateChange({"b": 1}, {}, ())}, ())),
        ({}, StateChange({}, {}, ("a",))),
        ({"a": 1}, StateChange({}, {"a": StateChange({"b": 1}, {}, ())}, ())),
        ({"a": [1]}, StateChange({}, {"a": StateChange({}, {}, (), ((2, 0, (3,)),))}, ())),
        ({"a": None}, StateChange({}, {"a": StateChange({}, {}, (), ((0, 0, (3,)),))}, ())),
    ],
)
def test_a_change_of_another_value_is_refused(value: object, change: StateChange) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        applied(value, change)


def test_elements_after_the_last_splice_stay() -> None:
    assert spliced((1, 2, 3, 4), [(1, 1, (7, 8))]) == [1, 7, 8, 3, 4]

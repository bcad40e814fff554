"""Compare traced mappings with plain ones: equal comparisons and derived values."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from anabranch_contract import codec
from anabranch_runtime.state.changes import StateChange, applied, difference, renewed
from anabranch_runtime.state.derived import Derived, Matching
from anabranch_runtime.traced import FEW, Traced, changed, changes

Mapped = dict[str, tuple[int, ...]]


def _walk(seed: int, steps: int) -> list[Mapped]:
    """Versions of a mapping: changed entries, some of them equal to the last ones; sometimes the
    next version of an older one, removed entries, another order, or a mapping read from a text.
    """
    rng = Random(seed)
    found: list[Mapped] = [{}]
    for step in range(steps):
        last = found[-1] if rng.random() < 0.9 else rng.choice(found)
        kind = rng.random()
        if kind < 0.8:
            names = rng.sample(range(2 * FEW), rng.choice([0, 1, 1, 2, FEW]))
            fresh: Mapped = {f"n{n}": (step, n) for n in names}
            if last and rng.random() < 0.3:
                name = rng.choice(list(last))
                fresh[name] = (*last[name],)
            found.append(changed(last, fresh))
        elif kind < 0.87:
            found.append({name: one for name, one in last.items() if rng.random() < 0.7})
        elif kind < 0.94:
            found.append(dict(rng.sample(list(last.items()), len(last))))
        else:
            found.append(pickle.loads(pickle.dumps(last)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_versions_differ_in_the_names_that_plain_mappings_do(seed: int) -> None:
    versions = _walk(seed, 200)
    rng, traced = Random(seed), 0
    for at in range(2, len(versions)):
        after = versions[at]
        for before in (versions[at - 1], versions[at - 2], rng.choice(versions)):
            names = changes(before, after)
            if names is not None:
                traced += 1
                assert all(after[n] is before[n] for n in after.keys() - names)
                assert before.keys() <= after.keys()
                assert after.keys() >= set(names)
            change = difference(before, after, ())
            plain = difference(dict(before), dict(after), ())
            assert change == plain
            written = codec.loads(codec.dumps(change), StateChange)
            assert applied(codec.to_json(before), written) == codec.to_json(after)
            assert renewed(dict(before), change) == after
    assert traced > 50


@pytest.mark.parametrize("seed", range(20))
def test_values_are_derived_as_of_plain_mappings(seed: int) -> None:
    def work(name: str, entry: tuple[int, ...]) -> tuple[str, int]:
        return name, sum(entry)

    traced, matching = Derived(work), Matching[tuple[int, ...]](lambda entry: sum(entry) % 3 == 0)
    for version in _walk(seed, 300):
        assert traced.of(version) == {name: work(name, one) for name, one in version.items()}
        assert matching.of(version) == {n for n, one in version.items() if sum(one) % 3 == 0}


def test_only_changed_entries_are_compared() -> None:
    class Counted(int):
        compared = 0

        def __ne__(self, other: object) -> bool:
            Counted.compared += 1
            return not int(self).__eq__(int(other))  # type: ignore[call-overload]

    some: dict[str, int] = {f"n{n}": Counted(n) for n in range(1000)}
    before = changed(some, {"n2": Counted(3)})
    after = changed(before, {"n3": Counted(7), "new": Counted(1)})
    found = difference(before, after, ())
    assert found.values == {"n3": 7, "new": 1}
    assert not found.removed
    assert Counted.compared == 1


def test_old_versions_are_forgotten() -> None:
    versions: list[dict[str, int]] = [{f"n{n}": n for n in range(FEW)}]
    for number in range(1, 3 * FEW):
        versions.append(changed(versions[-1], {"n0": number}))
    assert changes(versions[-2], versions[-1]) is not None
    assert changes(versions[1], versions[-1]) is None
    assert changes(versions[-1], versions[-2]) is None
    kept = versions[-1]
    assert isinstance(kept, Traced)
    assert len(kept._trace.names) <= FEW


def test_small_mappings_have_no_trace() -> None:
    assert type(changed({"a": 1}, {"b": 2})) is dict


def test_versions_do_not_change_in_place() -> None:
    some = {f"n{n}": n for n in range(FEW)}
    one = changed(some, {"a": 1})
    with pytest.raises(TypeError, match="never changes in place"):
        one["a"] = 2
    with pytest.raises(TypeError, match="never changes in place"):
        one.update(a=2)
    assert one == some | {"a": 1}
    assert changed(one, {}) is one
    assert type(one | {"c": 3}) is dict

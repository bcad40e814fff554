"""Tests of rows of a partial result for a store that keeps only some values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch_contract.plans.ruleset import KeptValues, StoreId, StoreSpec
from anabranch_contract.queries.joins import AttrRef, Label, RelationId
from anabranch_contract.queries.mirs import MirId
from anabranch_runtime.task.stores import kept_part
from tests.runtime.task.test_substreams import Failing, Keys, Starts, hashes

S, T = Label("S"), Label("T")
THREE, FOUR = hashes([3, 4], pa.int64(), "bigint")


def spec(kept: KeptValues | None) -> StoreSpec:
    relations = RelationId("S"), RelationId("T")
    return StoreSpec(StoreId("ST/1"), MirId("ST"), (S, T), relations, None, 1, kept=kept)


class Made(Starts):
    """Combinations with one key column, ``R.a`` or :class:`Keys`."""

    def where(self, mask: object) -> Made:
        kept = self.array.filter(pa.array(mask)).to_pylist()
        return Made(kept, self.array.type)


@pytest.mark.parametrize(
    ("hashed", "listed", "left"),
    [
        ((THREE,), True, [3, None, 3]),
        ((THREE,), False, [None, 4, 5]),
        (tuple(sorted((THREE, FOUR))), True, [3, None, 4, 3]),
        ((), True, [None]),
        ((), False, [3, None, 4, 5, 3]),
    ],
)
def test_combinations_of_other_values_are_left_out(
    hashed: tuple[int, ...], listed: bool, left: list[int | None]
) -> None:
    made = Made([3, None, 4, 5, 3], pa.int64())
    kept = KeptValues(AttrRef(Label("R"), "a"), "bigint", hashed, listed)
    found = kept_part(Keys(), spec(kept), made)  # type: ignore[arg-type]
    assert found.array.to_pylist() == left  # type: ignore[attr-defined]


def test_a_store_that_keeps_all_is_not_asked() -> None:
    made = Made([3], pa.int64())
    assert kept_part(Failing(), spec(None), made) is made  # type: ignore[arg-type,comparison-overlap]


def test_a_combination_whose_key_cannot_be_had_is_kept() -> None:
    made = Made([3, -1, 4, -2, 3], pa.int64())
    kept = KeptValues(AttrRef(Label("R"), "a"), "bigint", (THREE,), listed=True)
    found = kept_part(Failing(), spec(kept), made)  # type: ignore[arg-type]
    assert found.array.to_pylist() == [3, -1, -2, 3]  # type: ignore[attr-defined]

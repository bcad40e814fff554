"""Tests of estimated counts of outer joins under rations: left rows and pairs have separate
estimates.
"""

from __future__ import annotations

import pytest

from anabranch_contract.protocol.activations import Activation, LeftRows, counted, of_outer_join
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX, JoinKind


def activation(results: int, withheld: float = 0.0, owed: float = 0.0) -> Activation:
    return Activation(0, {}, results=results, withheld=withheld, owed=owed)


def test_results_of_a_left_join_are_its_pairs_and_the_left_rows_given() -> None:
    found = of_outer_join(
        activation(30, withheld=10.0, owed=4.0),
        activation(60, withheld=20.0, owed=8.0),
        LeftRows(JoinKind.LEFT, given=12, missing=6.0),
    )
    assert (found.results, found.withheld) == (42, 16.0)
    # 18 of 80 left rows are results; the same share of the 8 owed rows counts.
    assert found.owed == pytest.approx(4.0 + 8.0 * 18 / 80)


@pytest.mark.parametrize("kind", [JoinKind.SEMI, JoinKind.ANTI])
def test_pairs_of_semi_and_anti_joins_are_no_results(kind: JoinKind) -> None:
    pairs, left = activation(1_000, withheld=900.0), activation(10, withheld=10.0)
    found = of_outer_join(pairs, left, LeftRows(kind, given=4, missing=4.0))
    assert (found.results, found.withheld) == (4, 4.0)
    assert found.completeness == 0.5


def test_while_no_left_row_was_given_all_withheld_and_undecided_ones_count_as_missing() -> None:
    left = activation(5, withheld=20.0)
    found = of_outer_join(activation(0), left, LeftRows(JoinKind.ANTI, undecided=5))
    assert (found.results, found.withheld, found.completeness) == (0, 25.0, 0.0)


def test_of_undecided_rows_as_many_are_missing_as_are_results_of_the_others() -> None:
    # 5 of 20 decided left rows are results, so 10 of the 40 undecided rows will be.
    rows = LeftRows(JoinKind.ANTI, given=5, missing=2.0, undecided=40)
    assert of_outer_join(activation(0), activation(60), rows).withheld == 10.0


def test_counts_of_left_rows_add_up() -> None:
    one = LeftRows(JoinKind.LEFT, 1, 2.0, 3)
    assert one.plus(LeftRows(JoinKind.LEFT, 10, 20.0, 30)) == LeftRows(JoinKind.LEFT, 11, 22.0, 33)


def test_a_query_without_left_rows_counts_as_it_is_and_an_unknown_outer_join_not_at_all() -> None:
    plain, left = activation(3), activation(4)
    assert counted({"q": plain}, "q", None) is plain
    assert counted({"q": plain, "q" + LEFT_SUFFIX: left}, "q", None) is None
    assert counted({}, "q", None) is None

"""Counts of what views and outer joins have given."""

from __future__ import annotations

from pathlib import Path

from anabranch_runtime.views.counts import add, all_shown, put, shown_file, so_far, written_file


def test_a_version_that_is_made_again_counts_once(tmp_path: Path) -> None:
    file = written_file(tmp_path, "q")
    assert so_far(file) == 0
    made = ((1, 3), (1, 3), (2, 0), (3, 4))
    assert [add(file, v, n) for v, n in made] == [3, 3, 3, 7]
    assert add(file, 3, 4) == so_far(file) == 7


def test_rows_that_take_the_place_of_others_are_counted_alone(tmp_path: Path) -> None:
    file = shown_file(tmp_path, "view")
    assert [put(file, v, n) for v, n in ((1, 5), (2, 5), (3, 2))] == [5, 5, 2]
    assert so_far(file) == 2


def test_all_that_have_ever_been_are_shown(tmp_path: Path) -> None:
    assert all_shown(tmp_path) == {}
    put(shown_file(tmp_path, "view.of-2024"), 1, 21)
    add(shown_file(tmp_path, "outer"), 1, 3)
    assert all_shown(tmp_path) == {"view.of-2024": 21, "outer": 3}

"""Times of any year: no row of a view or of an outer join is lost to Spark's watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.worlds.far_times import run_outer, run_windows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", range(6))
def test_no_row_of_any_year_is_missing_in_windows(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    run_windows(spark, tmp_path, seed)


@pytest.mark.parametrize("seed", range(6))
def test_no_left_row_of_any_year_is_missing(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    run_outer(spark, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
@pytest.mark.parametrize("run", [run_windows, run_outer])
def test_many_times_of_any_year(
    run: Callable[[SparkSession, Path, int], object],
    seed: int,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    run(spark, tmp_path, seed)

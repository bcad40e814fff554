"""Tests of cleaning outliers from series: changed and unchanged values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_planner.forecast.outliers import CLIP, cleaned
from tests.planner.forecast.samples import random_columns


def lengths_of(values: np.ndarray) -> np.ndarray:
    return np.full(values.shape[1], len(values))


@given(st.integers(-1000, 1000), st.integers(-100, 100), st.integers(1, 40))
def test_lines_stay(first: int, rise: int, length: int) -> None:
    line = (first + rise * np.arange(float(length)))[:, None]
    assert (cleaned(line, lengths_of(line)) == line).all()


@given(st.integers(2, 20), st.integers(2, 20), st.floats(-1e6, 1e6))
def test_a_step_that_has_lasted_stays(before: int, after: int, height: float) -> None:
    step = np.array([1.0] * before + [1.0 + height] * after)[:, None]
    assert (cleaned(step, lengths_of(step)) == step).all()


def test_a_step_is_believed_when_a_second_value_confirms_it() -> None:
    once = np.array([1.0] * 20 + [9.0])[:, None]
    twice = np.array([1.0] * 20 + [9.0] * 2)[:, None]
    assert cleaned(once, lengths_of(once))[-1] == 1.0
    assert (cleaned(twice, lengths_of(twice)) == twice).all()


@pytest.mark.parametrize("place", [0, 1, 30, 58, 59])
def test_an_outlier_ends_within_the_clip_of_its_neighbours(place: int) -> None:
    clean = np.random.default_rng(4).normal(100, 2, (60, 5))
    dirty = clean.copy()
    dirty[place] *= 100
    # Differences have a standard deviation of 2 * sqrt(2); the centre also deviates.
    moved = np.abs(cleaned(dirty, lengths_of(dirty))[place] - 100).max()
    assert moved < (CLIP + 4) * 2 * np.sqrt(2)


def test_what_happens_often_is_no_outlier() -> None:
    bursts = np.zeros((60, 1))
    bursts[::5] = 10
    assert (cleaned(bursts, lengths_of(bursts)) == bursts).all()


def test_ordinary_noise_is_hardly_touched() -> None:
    values = random_columns(3, each=20)
    touched = cleaned(values, lengths_of(values)) != values
    assert touched.mean() < 0.02


@given(st.integers(1, 15), st.integers(0, 10), st.integers(0, 100))
def test_rows_after_the_end_say_nothing(length: int, padding: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(length, 2)) * rng.choice([1, 100], (length, 2), p=[0.8, 0.2])
    padded = np.vstack([values, np.broadcast_to(values[-1], (padding, 2))])
    alone = cleaned(values, lengths_of(values))
    among = cleaned(padded, np.full(2, length))
    assert (among[:length] == alone).all()
    assert (among[length:] == padded[length:]).all()

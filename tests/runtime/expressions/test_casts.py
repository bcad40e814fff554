"""Compare casts of whole columns with casts of single values."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.casts import cast

DOUBLE = DataType(TypeKind.DOUBLE)
#: Numbers near the middle between two decimals, where a double's rounding error decides.
NEAR = st.builds(
    lambda n, places, ulps: (n + 0.5) / 10**places * (1 + ulps * 2.0**-52),
    st.integers(-(10**6), 10**6),
    st.integers(0, 6),
    st.integers(-3, 3),
)
NUMBERS = st.one_of(
    st.none(), NEAR, st.floats(), st.floats(-1e6, 1e6), st.integers(-9, 9).map(float)
)


@given(
    st.lists(NUMBERS, min_size=1, max_size=40),
    st.sampled_from([(38, 0), (38, 2), (38, 5), (20, 10), (38, 30)]),
)
def test_doubles_become_decimals_as_their_texts_do(
    values: list[float | None], digits: tuple[int, int]
) -> None:
    target = DataType(TypeKind.DECIMAL, *digits)
    try:
        each = [_alone(value, target) for value in values]
    except ExpressionError:
        with pytest.raises(ExpressionError):
            cast(pa.array(values, pa.float64()), DOUBLE, target)
        return
    found = cast(pa.array(values, pa.float64()), DOUBLE, target)
    found.validate(full=True)
    assert found.type == arrow_type(target)
    assert found.to_pylist() == each


def _alone(value: float | None, target: DataType) -> Decimal | None:
    """Return the decimal of one value, cast by way of its text."""
    if value is None or value != value or abs(value) == float("inf"):
        return None
    text = pa.array([repr(value)])
    found: Decimal | None = cast(text, DataType(TypeKind.STRING), target)[0].as_py()
    return found


def test_too_many_digits_are_an_overflow() -> None:
    target = DataType(TypeKind.DECIMAL, 3, 1)
    assert cast(pa.array([99.94]), DOUBLE, target).to_pylist() == [Decimal("99.9")]
    for value in (99.95, 100.0, -1e9, 1e300):
        with pytest.raises(ExpressionError):
            cast(pa.array([1.0, value]), DOUBLE, target)
    beyond = pa.array([1.0, 1e9, None]).filter(pa.array([True, False, True]))
    assert cast(beyond, DOUBLE, target).to_pylist() == [Decimal("1.0"), None]

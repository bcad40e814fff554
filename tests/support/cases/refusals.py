"""Refusals of statements, for tests of error messages."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from tests.support.cases.sample_streams import sample_streams


def refusal(sql: str) -> QueryError:
    """Return the error of a refused statement over the sample streams."""
    with pytest.raises(QueryError) as caught:
        parse_sql("q", sql, sample_streams())
    assert caught.value.field == "sql"
    return caught.value

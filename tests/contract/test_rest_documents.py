"""Tests of REST responses of other releases' services, and of times in them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from anabranch_contract.rest.access import TokenOut
from anabranch_contract.rest.queries import QueryIn, QueryOut
from anabranch_contract.rest.streams import StreamList, StreamOut

TOKEN = {
    "id": "a",
    "name": "ci",
    "role": "viewer",
    "created_at": "2026-01-01T00:00:00.500000Z",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
    "usable": True,
}


def test_fields_of_a_newer_service_are_kept_at_every_depth() -> None:
    found = StreamList.read(
        {"items": [{"name": "s", "colour": "red", "source": {"format": "kafka", "rate": 7}}]}
    )
    (stream,) = found.items
    assert stream["colour"] == "red"
    assert stream.document()["source"]["rate"] == 7


def test_choices_of_a_newer_service_are_texts() -> None:
    found = TokenOut.read({**TOKEN, "role": "auditor"})
    assert found.role == "auditor"
    assert found.document()["role"] == "auditor"
    with pytest.raises(ValidationError):
        TokenOut.read({**TOKEN, "role": 7})


def test_fields_that_an_older_service_lacks_are_none_or_empty() -> None:
    found = QueryOut.read({"id": "q", "status": "active"})
    assert (found.sql, found.results, found.input_problems, found.earlier) == (None, 0, {}, [])
    assert found.normalised.output == []
    assert StreamOut.read({"name": "s"}).source_status.error is None


def test_a_document_without_a_single_field_is_no_answer() -> None:
    documents: list[object] = [{}, {"hello": "world"}, []]
    for document in documents:
        with pytest.raises(ValidationError):
            StreamOut.read(document)


def test_the_service_says_everything_and_requests_nothing_unknown() -> None:
    with pytest.raises(ValidationError):
        StreamOut.model_validate({"name": "s"})
    with pytest.raises(ValidationError):
        QueryIn.model_validate({"sql": "SELECT 1", "colour": "red"})


def test_times_are_texts_with_a_time_zone() -> None:
    moment = datetime(2026, 1, 1, microsecond=500_000, tzinfo=UTC)
    assert (
        TokenOut.model_validate({**TOKEN, "created_at": moment}).created_at == (TOKEN["created_at"])
    )
    for wrong in ("2026-01-01T00:00:00", "yesterday", 7):
        with pytest.raises(ValidationError):
            TokenOut.model_validate({**TOKEN, "created_at": wrong})

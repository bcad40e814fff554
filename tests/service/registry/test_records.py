"""Tests of records of epochs: long fields are stored separately, and later explanations
are added.
"""

from __future__ import annotations

from datetime import UTC, datetime

from anabranch_service.registry.publishing.publication import seal, seal_again
from anabranch_service.registry.records import EpochRecord, Explanation, PlanDetails
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

LATER = datetime(2026, 11, 24, tzinfo=UTC)


def published(shop: Service) -> EpochRecord:
    """Return the complete record of an epoch with one query."""
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    light = EpochRecord.model_validate_json(str(shop.redis.get(shop.keys.epoch(0))))
    kept = str(shop.redis.get(f"{shop.keys.namespace}:plans:0"))
    return light.with_details(PlanDetails.model_validate_json(kept))


def test_a_record_is_what_is_long_in_it_and_the_rest(shop: Service) -> None:
    record = published(shop)
    assert record.explain["queries"]
    assert record.decisions is not None
    light = record.without_details()
    assert (light.explain, light.decisions) == ({}, None)
    assert light.with_details(record.details()) == record
    # The digest of the plan is in both, so lists need no long fields.
    assert light.summary() == record.summary()
    assert record.summary().plan == record.with_digest().plan


def test_a_record_of_an_earlier_release_has_its_digest_worked_out(shop: Service) -> None:
    record = published(shop)
    earlier = record.model_copy(update={"plan": None})
    assert earlier.summary().plan == record.plan
    assert earlier.without_details().summary().plan is None


def test_an_epoch_for_which_nothing_has_changed_says_so(shop: Service) -> None:
    record = published(shop).model_copy(update={"switching_cost": 7.0})
    again = record.again(5, LATER)
    assert (again.epoch, again.same_as, again.switching_cost) == (5, 0, 0.0)
    assert again.published_at != record.published_at
    assert (again.queries, again.cost, again.plan) == (record.queries, record.cost, record.plan)
    changes = again.summary().changes
    assert changes is not None
    assert set(changes.model_dump().values()) == {0}
    sealed = seal_again(again)
    assert (sealed.ruleset, sealed.details) == ("", "")
    assert sealed.size == len(sealed.text)


def test_what_is_worked_out_later_is_added(shop: Service) -> None:
    record = published(shop).model_copy(update={"explained": False, "individual_cost": None})
    found = Explanation.missing("the explanation failed: no time").model_copy(
        update={"individual_cost": 12.5}
    )
    whole = record.with_explanation(found)
    assert (whole.explained, whole.individual_cost) == (True, 12.5)
    assert whole.diff_reason == "the explanation failed: no time"


def test_a_sealed_epoch_rejects_also_what_was_rejected_before(shop: Service) -> None:
    record = published(shop)
    problem = {"code": "cross-product", "message": "no predicate", "remedy": "add one"}
    rejected = EpochRecord.model_validate(dict(record) | {"rejected": {"bad": problem}}).rejected
    sealed = seal(record, "{}").rejecting(rejected)
    assert sealed.rejected == rejected
    assert EpochRecord.model_validate_json(sealed.text).rejected == rejected

"""Tests that the running rules are kept when planning fails completely."""

from __future__ import annotations

import pytest

from anabranch_contract.plans import ruleset as wire
from anabranch_service.planning import epoch as planning
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service, eventually


def test_the_rules_of_the_last_epoch_go_on(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no plan today")

    with monkeypatch.context() as patch:
        patch.setattr(planning, "make_rules", broken)
        shop.plan(0)
    carried = shop.get("/v1/epochs/1")
    assert carried["queries"] == ["pair"]
    assert "no plan today" in carried["fallback"]
    assert carried["diff"] is None
    assert "the rules of epoch 0 go on" in carried["diff_reason"]
    before, after = (wire.from_json(shop.get(f"/v1/epochs/{n}/ruleset")) for n in (0, 1))
    assert (after.epoch, after.probe_rules) == (1, before.probe_rules)
    assert shop.get("/v1/queries/pair")["last_epoch"] is None
    shop.plan(1)
    assert shop.get("/v1/epochs/2")["fallback"] == ""
    assert shop.get("/v1/epochs/2")["diff"]["unchanged"] is True


def test_without_an_earlier_epoch_the_loop_tries_again(
    shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no plan today")

    with monkeypatch.context() as patch:
        patch.setattr(planning, "make_rules", broken)
        shop.boundary(-1)
        eventually(
            lambda: shop.http.get("/readyz").status_code == 503, "readiness tells of the failure"
        )
        assert "no plan today" in shop.get("/readyz", 503)["detail"]
        assert shop.get("/v1/epochs")["items"] == []
    shop.answered()
    assert shop.get("/v1/epochs/0")["epoch"] == 0
    assert shop.get("/readyz")["status"] == "ready"

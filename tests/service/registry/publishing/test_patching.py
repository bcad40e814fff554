"""Tests of epochs whose rulesets are published as patches of an earlier one, on a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from redis.asyncio import Redis

from anabranch_contract.packed import unpack
from anabranch_contract.plans import patches
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import RulesetId, digest
from anabranch_runtime.control import Control
from anabranch_service.planning import loop
from anabranch_service.registry.publishing.lease import LeaderTerm
from anabranch_service.registry.publishing.patching import Base, seal_patched
from anabranch_service.registry.publishing.publication import (
    LEAST_EPOCHS,
    Publication,
    Sealed,
    seal_again,
)
from anabranch_service.registry.records import EpochRecord
from anabranch_service.registry.store import Store
from tests.service.conftest import PAIR
from tests.service.planning.process.test_process import children
from tests.support.worlds.service import Service


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch, shop: Service) -> Service:
    """A service with twelve queries that makes all plans in another process."""
    monkeypatch.setattr(loop, "APART", 1)
    for number in range(12):
        add(shop, number)
    return shop


def add(service: Service, number: int) -> None:
    sql = f"{PAIR} WHERE o.order_id > {number}"
    service.post("/v1/queries", {"id": f"q{number:02}", "sql": sql})


def kept(service: Service, epoch: int) -> str:
    return unpack(str(service.redis.get(service.keys.ruleset(epoch))))


def base_of(service: Service, epoch: int) -> int | None:
    """Return the base of an epoch's ruleset; None: it is stored in full."""
    text = kept(service, epoch)
    found = patches.loads(text).base.epoch if patches.is_patch(text) else None
    noted = service.redis.hget(f"{service.keys.namespace}:epochs:bases", str(epoch))
    assert noted == (None if found is None else str(found))
    return found


def checked(service: Service, epoch: int) -> list[str]:
    """Return the queries of an epoch's ruleset, after checking that all readers agree."""
    text = service.http.get(f"/v1/epochs/{epoch}/ruleset").text
    assert digest(text) == service.get(f"/v1/epochs/{epoch}")["ruleset_digest"]
    control = Control(service.settings.redis_url, service.keys.namespace)
    assert control.ruleset_text(RulesetId(epoch)) == text
    found = control.ruleset(RulesetId(epoch))
    assert found == rulesets.loads(text)
    assert found.epoch == epoch
    return [str(query.id) for query in found.queries]


def test_a_query_more_or_less_is_a_patch(apart: Service) -> None:
    apart.plan(-1)
    names = [f"q{number:02}" for number in range(12)]
    assert (base_of(apart, 0), checked(apart, 0)) == (None, names)
    assert not apart.redis.exists(apart.keys.newest_ruleset)
    add(apart, 12)
    apart.plan(0)
    assert (base_of(apart, 1), checked(apart, 1)) == (0, [*names, "q12"])
    assert len(kept(apart, 1)) < len(kept(apart, 0)) / 4
    whole = apart.http.get("/v1/epochs/1/ruleset").text
    assert unpack(str(apart.redis.get(apart.keys.newest_ruleset))) == whole
    sizes = [int(str(apart.redis.hget(f"{apart.keys.namespace}:epochs:bytes", n))) for n in "01"]
    assert sizes[1] - sizes[0] < len(kept(apart, 1)) - len(kept(apart, 0)) / 2
    # The copy of a patch has its base.
    apart.plan(1)
    assert apart.get("/v1/epochs/2")["same_as"] == 1
    assert (base_of(apart, 2), checked(apart, 2)) == (0, [*names, "q12"])
    assert kept(apart, 2) == kept(apart, 1)
    apart.call("DELETE", "/v1/queries/q03", 202)
    apart.plan(2)
    assert (base_of(apart, 3), checked(apart, 3)) == (0, [n for n in [*names, "q12"] if n != "q03"])


def test_a_base_has_served_its_time_when_its_patches_are_as_long(apart: Service) -> None:
    apart.plan(-1)
    for epoch in range(1, 14):
        add(apart, 100 + epoch)
        apart.plan(epoch - 1)
    bases = [base_of(apart, epoch) for epoch in range(14)]
    assert 2 <= bases.count(None) <= 7
    newest, spent = 0, 0
    for epoch, base in enumerate(bases):
        assert len(checked(apart, epoch)) == 12 + epoch
        if base is None:
            newest, spent = epoch, 0
        else:
            assert base == newest
            spent += len(kept(apart, epoch))
            whole = apart.http.get(f"/v1/epochs/{epoch}/ruleset").text
            assert len(kept(apart, epoch)) <= len(whole) / 4
            assert spent <= len(whole)


def test_a_process_that_has_no_base_publishes_the_whole_ruleset(apart: Service) -> None:
    apart.plan(-1)
    add(apart, 12)
    apart.plan(0)
    assert base_of(apart, 1) == 0
    (child,) = children()
    child.kill()
    # The epoch that is lost with it carries the rules over.
    add(apart, 13)
    apart.plan(1)
    assert (base_of(apart, 2), len(checked(apart, 2))) == (None, 13)
    assert not apart.redis.exists(apart.keys.newest_ruleset)
    apart.plan(2)
    assert (base_of(apart, 3), len(checked(apart, 3))) == (None, 14)
    add(apart, 14)
    apart.plan(3)
    assert (base_of(apart, 4), len(checked(apart, 4))) == (3, 15)


@pytest.mark.parametrize("there", ["", "another"])
def test_a_patch_of_what_redis_does_not_have_is_not_published(apart: Service, there: str) -> None:
    apart.plan(-1)
    if there:
        apart.redis.set(apart.keys.ruleset(0), kept(apart, 0).replace('"q00"', '"q99"'))
    else:
        apart.redis.delete(apart.keys.ruleset(0))
    add(apart, 12)
    apart.plan(0)
    assert (base_of(apart, 1), len(checked(apart, 1))) == (None, 13)


def test_the_whole_ruleset_is_read_where_a_patch_can_not_be_applied(apart: Service) -> None:
    apart.plan(-1)
    add(apart, 12)
    apart.plan(0)
    apart.plan(1)
    whole = [apart.http.get(f"/v1/epochs/{n}/ruleset").text for n in range(3)]
    for there in (None, whole[0].replace('"q00"', '"q99"'), kept(apart, 1)):
        if there is None:
            apart.redis.delete(apart.keys.ruleset(0))
        else:
            apart.redis.set(apart.keys.ruleset(0), there)
        assert [apart.http.get(f"/v1/epochs/{n}/ruleset").text for n in (1, 2)] == whole[1:]
        assert [len(checked(apart, n)) for n in (1, 2)] == [13, 13]
    apart.redis.set(apart.keys.newest_ruleset, whole[0])
    for epoch in (1, 2):
        assert apart.http.get(f"/v1/epochs/{epoch}/ruleset").status_code == 404
    # The running ruleset can't be read, so the next one is published in full.
    add(apart, 13)
    apart.plan(2)
    assert (base_of(apart, 3), len(checked(apart, 3))) == (None, 14)


class _Epochs:
    """Publishes epochs itself, in the term of the service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        text = str(service.redis.get(service.keys.epoch(0)))
        self.record = EpochRecord.model_validate_json(text)
        self.rules = rulesets.loads(kept(service, 0))
        self.base: Base | None = None

    def ruleset(self, epoch: int) -> str:
        sketches = self.rules.sketches[epoch % 3 :]
        return rulesets.dumps(replace(self.rules, epoch=epoch, sketches=sketches))

    def sealed(self, epoch: int) -> Sealed:
        record = self.record.model_copy(update={"epoch": epoch})
        sealed, self.base = seal_patched(record, self.ruleset(epoch), self.base)
        return sealed

    def run(self, work: Callable[[Publication], Awaitable[None]]) -> None:
        async def within() -> None:
            url, keys = self.service.settings.redis_url, self.service.keys
            leader = self.service.redis.hgetall(keys.leader)
            term = LeaderTerm(str(leader["owner"]), int(str(leader["token"])))
            async with Redis.from_url(url, decode_responses=True) as redis:
                await work(Publication(Store(redis, keys.namespace), term))

        asyncio.run(within())


def test_a_base_is_kept_as_long_as_a_patch_of_it(apart: Service) -> None:
    apart.plan(-1)
    epochs, keys, redis = _Epochs(apart), apart.keys, apart.redis
    bases: dict[int, int] = {}

    async def publish(publication: Publication) -> None:
        for epoch in range(1, 60):
            if epoch in (25, 40):
                epochs.base = None
            if epoch % 4 == 3:
                again = seal_again(epochs.record.again(epoch, datetime.now(UTC)))
                assert await publication.epoch_again(again, epoch - 1)
            else:
                assert await publication.epoch(epochs.sealed(epoch))
            await publication.forget_epochs(LEAST_EPOCHS, 1 << 30)
            base = base_of(apart, epoch)
            if base is not None:
                bases[epoch] = base
            there = {int(str(n)) for n in redis.zrange(keys.published, 0, -1)}
            needed = {bases[n] for n in there if n in bases}
            found = map(str, redis.scan_iter(f"{keys.namespace}:ruleset:[0-9]*"))
            whole = {int(key.rpartition(":")[2]) for key in found}
            assert whole == there | needed
            assert min(there) == max(epoch - LEAST_EPOCHS + 1, 0)
            noted = redis.hgetall(f"{keys.namespace}:epochs:bases")
            assert {int(n) for n in noted} == there & set(bases)

    epochs.run(publish)
    assert len(set(bases.values())) >= 3
    assert not redis.exists(keys.ruleset(1))
    for epoch in range(60 - LEAST_EPOCHS, 60):
        text = apart.http.get(f"/v1/epochs/{epoch}/ruleset").text
        made = epoch if epoch % 4 != 3 else epoch - 1
        assert text == rulesets.renumbered(epochs.ruleset(made), epoch)

"""Tests of live drifts: answered after their first batches, also for following epochs, and
measured.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.plans.steps import WHOLE, counted_steps
from anabranch_contract.protocol.progress import Mode
from anabranch_service.settings import ServiceSettings
from tests.support.cases import drifting
from tests.support.worlds.live_loop import LiveLoop
from tests.support.worlds.service import serving

#: The batch in which the data change, and the last one. Probe orders are the same for ten batches
#: before, while the level of a step is learned.
DRIFT, LAST = 34, 42
#: Batches per epoch.
EPOCH = 4


@pytest.mark.slow
def test_no_later_epoch_undoes_the_revision(
    settings: ServiceSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs that were planned before the drift begin with rules revised since."""
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        drifting.register(service)
        service.call("PATCH", "/v1/settings", 200, {"substreams": 1})
        loop = LiveLoop(service, tmp_path, monkeypatch, every=EPOCH)
        went_by = [
            loop.run(drifting.batch(number, drifted=number >= DRIFT)) for number in range(LAST)
        ]
        revised = went_by.index(next(name for name in went_by[DRIFT:] if name.revision))
        (answer,) = loop.revisions(went_by[revised].epoch)
        assert answer["reason"] == "cheaper"
        # The next epoch had been published before, with the orders that the revision replaced.
        following = next(name for name in went_by[revised:] if name.epoch > went_by[revised].epoch)
        published = loop.ruleset(RulesetId(following.epoch))
        before = loop.ruleset(RulesetId(went_by[revised].epoch))
        assert orders(published) == orders(before)
        assert following.revision
        (carried,) = loop.revisions(following.epoch)
        assert (carried["reason"], carried["next_batch"]) == ("carried-over", answer["next_batch"])
        for name in went_by[revised:]:
            assert orders(loop.ruleset(name)) != orders(before)


@pytest.mark.slow
def test_a_plan_by_dppick_is_revised_by_dppick_and_stays_exact(
    settings: ServiceSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drift makes other orders the cheapest by Eq. 8; results equal a single join's."""
    batches = [drifting.batch(number, drifted=number >= DRIFT) for number in range(LAST)]
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        drifting.register(service)
        service.call("PATCH", "/v1/settings", 200, {"optimizer": "dppick"})
        loop = LiveLoop(service, tmp_path, monkeypatch, every=EPOCH)
        went_by = [loop.run(tables) for tables in batches]
        assert service.get("/v1/epochs/current")["epoch"]["optimizer"] == "dppick"
        revised = next(name for name in went_by[DRIFT:] if name.revision)
        rules, before = loop.ruleset(revised), loop.ruleset(RulesetId(revised.epoch))
        assert orders(rules) != orders(before)
        assert {store.owner for store in rules.stores} == {"q"}
        assert all(len(store.members) == 1 for store in rules.stores)
    database = duckdb.connect()
    for name in "rstu":
        rows = pa.concat_tables(pa.table(tables[name]) for tables in batches)
        database.register(name, rows)
    # All of them would take DuckDB minutes.
    some = "SELECT * FROM ({}) WHERE rn % 97 = 0"
    wanted = some.format(drifting.QUERY)
    written = some.format(
        f"SELECT rn, sn, tn, un FROM read_parquet('{tmp_path}/results/q/**/*.parquet')"
    )
    for one, other in ((wanted, written), (written, wanted)):
        assert database.execute(f"{one} EXCEPT ALL {other} LIMIT 1").fetchall() == []
    assert database.execute(f"{written} LIMIT 1").fetchall()


@pytest.mark.slow
def test_what_a_revision_has_gained_is_measured_across_epochs(
    settings: ServiceSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With default settings; every batch is a period, and epochs keep the same orders."""
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        drifting.register(service)
        loop = LiveLoop(service, tmp_path, monkeypatch, every=EPOCH, seconds=0.0)
        for number in range(LAST + 1):
            loop.run(drifting.batch(number, drifted=number >= DRIFT))
        revisions = [r for e in range(loop.driver.state.epoch + 1) for r in loop.revisions(e)]
        measured = [r for r in revisions if r["measured"] and r["next_batch"] > DRIFT]
        assert measured
        for revision in measured:
            gain = revision["measured"]
            assert gain["periods"] >= 2
            assert gain["gain"] == pytest.approx(1 - gain["after"] / gain["before"])
            assert not (gain["gain"] > 0 and gain["lost"])
            assert gain["predicted"] is not None
            same = gain["predicted"] == pytest.approx(revision["predicted"])
            assert same or gain["baseline"] != revision["baseline"]


def orders(ruleset: Ruleset) -> set[tuple[object, ...]]:
    """Return start, edge, target and substreams of each probe."""
    return {(rule.start, rule.edge, rule.mir, rule.substreams) for rule in ruleset.probe_rules}


@pytest.mark.slow
def test_substreams_do_not_delay_the_revision(
    settings: ServiceSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With four substreams, the default, it is made within the epoch, as with one substream."""
    revised = {}
    for most in (1, 4):
        given = replace(settings, mode=Mode.LIVE, namespace=f"{settings.namespace}.{most}")
        with serving(given) as service:
            drifting.register(service)
            service.call("PATCH", "/v1/settings", 200, {"substreams": most})
            loop = LiveLoop(service, tmp_path / str(most), monkeypatch, every=EPOCH)
            for number in range(LAST):
                loop.run(drifting.batch(number, drifted=number >= DRIFT))
                if number == DRIFT - 1:
                    parts = {c.step.part for c in counted_steps(loop.rules()).values()}
                    assert (parts == {WHOLE}) == (most == 1)
            epochs = range(loop.driver.state.epoch + 3)
            revisions = [r for e in epochs for r in loop.revisions(e)]
            revised[most] = min(r["next_batch"] for r in revisions)
            drifted = [i for i in loop.interims() if i.drifted.steps]
            assert any(step.part.substreams for i in drifted for step in i.drifted.steps) == (
                most > 1
            )
    assert DRIFT < revised[1] <= DRIFT + EPOCH
    assert DRIFT < revised[4] <= DRIFT + EPOCH

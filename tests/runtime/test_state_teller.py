"""What the driver tells of its stores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import redis

from anabranch_planner.exchange import Mode
from anabranch_planner.state_report import StateReport
from anabranch_runtime import state_teller
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.state.report import state_report
from tests.support.driven import KEYS, driver, job, publish
from tests.support.states import RS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def told(url: str) -> StateReport | None:
    text = redis.Redis.from_url(url).get(KEYS.state)
    return None if text is None else StateReport.loads(text)


def test_every_state_is_told_of_when_there_is_time(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    assert told(url) is None
    for batch in range(3):
        one.run(batch, job(batch))
        found = told(url)
        assert found == state_report(tmp_path / "state", one.state, one.rulesets.get(0))
        assert found is not None
        assert found.next_batch == batch + 1
        assert {s.mir: (s.rows, s.queries) for s in found.stores} == {
            "R": (batch + 1, ("q",)),
            "S": (batch + 1, ("q",)),
        }
        assert found.write_amplification == 1
        # Headers, footers and what aligns blobs.
        assert found.disk_bytes > found.bytes > 0


def test_what_came_too_soon_is_told_of_later(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 3600.0)
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10, seconds=3600.0)
    one.run(0, job(0))
    one.run(1, job(1))
    one.tick()
    found = told(url)
    assert found is not None
    assert found.next_batch == 1
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    one.tick()
    found = told(url)
    assert found is not None
    assert found.next_batch == 2


def test_the_end_of_a_replay_is_told_of_at_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 3600.0)
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    one.total_batches = 2
    one.run(0, job(0))
    one.run(1, job(1))
    found = told(url)
    assert found is not None
    assert found.next_batch == 2


def test_stores_of_a_failed_query_are_gone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    publish(url, 0, {"q": RS, "bad": f"{RS} WHERE 10 / S.b > 1"})
    one = driver(url, tmp_path, every=10)
    one.run(0, job(0))
    assert one.state.queries["bad"].failure is not None
    found = told(url)
    assert found is not None
    assert sorted(s.store for s in found.stores) == sorted(one.state.stores)
    assert {q for s in found.stores for q in s.queries} == {"q"}


def test_a_ruleset_that_nobody_has_leaves_the_stores(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10, seconds=3600.0)
    one.run(0, job(0))

    def lost(number: int) -> NoReturn:
        raise PipelineError("no-ruleset", f"ruleset {number} is nowhere")

    monkeypatch.setattr(one.rulesets, "get", lost)
    one.state = replace(one.state)
    one.tick()
    found = told(url)
    assert found is not None
    assert {s.mir: (s.rows, s.queries) for s in found.stores} == {"R": (1, ()), "S": (1, ())}

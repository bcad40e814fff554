"""What a driver reports of periods, read from Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis as redis_client

from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.keys import INTERIMS_KEPT
from anabranch_runtime.__main__ import main
from anabranch_runtime.control import Control
from tests.support.cases.states import ST
from tests.support.worlds.driven import KEYS, driver, job, publish

if TYPE_CHECKING:
    from pathlib import Path


def reported(url: str) -> list[Interim]:
    texts = redis_client.Redis.from_url(url).lrange(KEYS.interims, 0, -1)
    return [Interim.loads(text) for text in texts]


def test_every_period_and_what_a_step_did_in_it(url: str, tmp_path: Path) -> None:
    """Batch ``b`` has one tuple of each stream: R's finds ``b`` of S, S's ``b + 1`` of R."""
    for epoch in range(3):
        publish(url, epoch)
    one = driver(url, tmp_path, every=2, interim_seconds=0.0)
    for batch in range(5):
        one.run(batch, job(batch))

    found = reported(url)
    assert [p.next_batch for p in found] == [1, 2, 3, 4, 5]
    assert [p.epoch for p in found] == [0, 0, 1, 1, 2]
    assert [p.arrivals for p in found] == [{"R": 1, "S": 1}] * 5
    for batch, period in enumerate(found):
        counts = {step.head: step.counts for step in period.steps}
        assert {head: (c.probes, c.found, c.matches) for head, c in counts.items()} == {
            ("R",): (1, min(batch, 1), batch),
            ("S",): (1, 1, batch + 1),
        }
        assert {store: size.rows for store, size in period.stores.items()} == {
            "R/1": batch + 1, "S/1": batch + 1,
        }  # fmt: skip
        assert 0 < period.seconds < 60
        assert all(step.counts.calls == 1 for step in period.steps)
        # Each tuple looks into the segments of all batches so far, its own included.
        assert {c.looked for c in counts.values()} == {batch + 1}
        assert (period.inserts.writes, period.inserts.rows) == (2, 2)
        assert period.inserts.seconds > 0


def test_a_period_lasts_as_long_as_it_is_set_to(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    publish(url, 1, {"p": ST})
    one = driver(url, tmp_path, every=2, interim_seconds=3600.0)
    for batch in range(4):
        one.run(batch, job(batch))
    assert reported(url) == []


def test_a_driver_that_starts_begins_a_period_and_keeps_what_is_there(
    url: str, tmp_path: Path
) -> None:
    publish(url, 0)
    for batch in range(2):
        driver(url, tmp_path, every=5, interim_seconds=0.0).run(batch, job(batch))
    assert [(p.next_batch, p.batches) for p in reported(url)] == [(1, 1), (2, 1)]
    assert [sum(s.counts.probes for s in p.steps) for p in reported(url)] == [2, 2]


def test_the_newest_are_kept(url: str) -> None:
    control = Control(url, "test")
    for number in range(INTERIMS_KEPT + 3):
        control.report_interim(Interim(float(number), 3.0, 0, 0, number, 1))
    assert [p.next_batch for p in reported(url)] == list(range(3, INTERIMS_KEPT + 3))


@pytest.mark.parametrize("given", ["0", "nan", "-3", "3601", "soon", "inf"])
def test_a_length_out_of_range_is_refused_by_name(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--redis-url", "redis://x", "--state", str(tmp_path), "--results", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main([*options, f"--interim-seconds={given}"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "--interim-seconds" in told
    assert "from 0.1 to 3600" in told

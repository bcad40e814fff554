"""A live drift is answered after its first batches, in however many substreams tuples are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from anabranch_contract.plans.steps import WHOLE, counted_steps
from anabranch_contract.protocol.progress import Mode
from tests.support.cases import drifting
from tests.support.worlds.live_loop import LiveLoop
from tests.support.worlds.service import serving

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch_service.settings import Settings

#: The batch in which the data change, and the last one.
DRIFT, LAST = 24, 32
#: Batches.
EPOCH = 4


@pytest.mark.slow
def test_substreams_do_not_delay_the_revision(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With four substreams, the default, it comes within the epoch that one substream takes."""
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

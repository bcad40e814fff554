"""Compare look-ahead (presence) filters with joins against the whole store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from anabranch_contract.plans.plan import Backfilling
from anabranch_contract.plans.ruleset import Presence
from anabranch_runtime.index.matching import ANY
from anabranch_runtime.probe.presence import PresenceTest
from anabranch_runtime.probe.probe import Lookup, Target
from anabranch_runtime.storage.partial import Partial
from tests.runtime.replays.test_measured_steps import write_correlated
from tests.support.plain_service import odd_plans
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.local_replay import LocalReplay


@pytest.mark.parametrize("seed", mostly_slow(range(3)))
def test_tuples_are_dropped_that_find_nothing_whenever_it_arrived(
    redis: str, tmp_path: Path, seed: int
) -> None:
    seen = Counter[str]()
    present = PresenceTest._present

    def compared(self: PresenceTest, partial: Partial, asked: Presence) -> object:
        mask, tiles = present(self, partial, asked), self._tiles(asked)
        if tiles is None:
            assert mask is None
            return mask
        assert mask is not None
        numbered, prober = partial.numbered(), self._prober
        store = prober.layout.specs[asked.store]
        target = Target(asked.mir, asked.key, store.members, (), whenever=True)
        found = prober._join(Lookup(prober, numbered, target, ()), tiles, None, ANY)
        prober.reads.forget()
        expected = np.zeros(partial.length, np.bool_)
        if found is not None and found.origins is not None:
            expected[found.origins] = True
        assert np.array_equal(mask, expected)
        seen["dropped"] += int((~mask).sum())
        seen["left"] += int(mask.sum())
        return mask

    path = write_correlated(tmp_path / "scenario")
    run = LocalReplay(
        path,
        tmp_path / "out",
        redis,
        planner=odd_plans(seed),
        backfilling=lambda _: Backfilling.NEVER,
    )
    with patch.object(PresenceTest, "_present", compared):
        assert run.run()["q"].results > 0
    assert seen["left"]
    assert seen["dropped"]

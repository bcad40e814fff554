"""Compare counts of probes with the combinations that the probes make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import pytest

from anabranch_contract.plans.plan import Backfilling, Optimizer, Plan
from anabranch_contract.plans.ruleset import ProbeRule
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_runtime.probe.probe import Prober
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.storage.partial import Partial
from tests.runtime.replays.test_measured_steps import write_correlated
from tests.support.cases.random_plans import random_plan
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.local_replay import LocalReplay


@pytest.mark.parametrize("seed", mostly_slow(range(4)))
def test_found_counts_the_probing_tuples_that_have_a_match(
    redis: str, tmp_path: Path, seed: int
) -> None:
    """Without bounds and residuals, these are the tuples that the result extends.

    Random plans take turns and compute nothing for the past, so probes of intermediate results are
    also answered by their parts.
    """
    rng, seen = Random(seed), Counter[str]()
    probe = Prober.probe

    def compared(self: Prober, partial: Partial, rule: ProbeRule, access: Access) -> Partial | None:
        before = self.meters[rule.out].found
        result = probe(self, partial, rule, access)
        found = self.meters[rule.out].found - before
        assert not rule.bounds
        assert not rule.residuals
        labels = sorted(partial.place)
        extended = 0
        if result is not None:
            tuples = np.stack([result.sigma(label) for label in labels])
            extended = np.unique(tuples, axis=1).shape[1]
        assert found == extended
        seen["by parts and by rows"] += bool(access.gaps) and bool(access.tiles)
        seen["found several times"] += result is not None and result.length > found > 0
        seen["by parts alone"] += bool(access.gaps) and not access.tiles
        return result

    def planner(
        queries: Sequence[JoinQuery], _: Statistics, __: Optimizer, ___: int, ____: int
    ) -> Plan:
        return random_plan(queries, rng, mirs=1.0)

    path = write_correlated(tmp_path / "scenario")
    run = LocalReplay(
        path, tmp_path / "out", redis, planner=planner, backfilling=lambda _: Backfilling.NEVER
    )
    with patch.object(Prober, "probe", compared):
        assert run.run()["q"].results > 0
    assert seen["found several times"]
    assert seen["by parts alone"] + seen["by parts and by rows"]

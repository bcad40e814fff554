"""Probes that go the short way make and count what they would by the general one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from anabranch_contract.plans.ruleset import ProbeRule
from anabranch_runtime.index.matching import ANY
from anabranch_runtime.probe.direct import Direct
from anabranch_runtime.probe.probe import Prober, check
from anabranch_runtime.probe.reads import EdgeMeter, ReadMeters
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.storage.partial import Partial
from tests.support.oracles.probed import counts, read, tuples
from tests.support.scenarios.crowded import BATCHES, generate_crowded
from tests.support.scenarios.run import run_local
from tests.support.scenarios.script import draw


@pytest.mark.parametrize("seed", [6])
def test_both_ways_make_and_count_the_same(seed: int, redis: str, tmp_path: Path) -> None:
    seen, probe, wrong = Counter[str](), Prober._probe, list[Any]()

    def both(
        self: Prober, partial: Partial, rule: ProbeRule, access: Access, meter: EdgeMeter
    ) -> Partial | None:
        one, other = (replace(self, most=ANY, reads=ReadMeters()) for _ in range(2))
        direct = None
        if not self.by_stream:
            direct = Direct.of(one.layout, one.segments, partial, rule, access)
        if direct is not None:
            short, general = EdgeMeter(), EdgeMeter()
            made = direct.join(one.reads, short, ANY)
            if made is not None:
                made = check(self.layout, made, (), rule.residuals)
                short.made += made.length
            found = (tuples(made), counts(short), read(one))
            made = other.generally(partial, rule, access, general, ANY)
            if found != (tuples(made), counts(general), read(other)):
                wrong.append((rule.out, found, (tuples(made), counts(general), read(other))))
            seen["direct"] += 1
            seen["with bounds"] += bool(rule.bounds)
            seen["without a match"] += made is None
            seen["with many"] += made is not None and made.length > partial.length
        return probe(self, partial, rule, access, meter)

    with patch.object(Prober, "_probe", both):
        scenario = generate_crowded(seed, tmp_path, 12)
        verdict, _ = run_local(scenario, draw(seed, BATCHES), redis)
    assert not verdict.problems
    assert not wrong, wrong[:2]
    assert min(seen[k] for k in ("direct", "with bounds", "without a match", "with many")), seen

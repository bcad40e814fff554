"""Tests that a round of many edges has the same tuples and counts as each edge probed separately.

Every round of a run is repeated edge by edge; the results of the whole run are also compared with
DuckDB's (``run_local``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.protocol.reads import Reads
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.index.matching import ANY
from anabranch_runtime.probe.reads import ReadMeters
from anabranch_runtime.probe.rounds import Front, Rounds, Targets
from tests.support.oracles.probed import counts, places, read, tuples
from tests.support.scenarios.crowded import BATCHES, generate_crowded
from tests.support.scenarios.draw import Generated
from tests.support.scenarios.run import local, run_local
from tests.support.scenarios.script import draw

#: Cases that must have occurred, or the comparison would say little.
WANTED = (
    "with bounds",
    "without a match",
    "with many",
    "inclusive",
    "deeper",
    "many edges",
    "cut short",
)


@contextmanager
def compared() -> Iterator[tuple[Counter[str], list[Any]]]:
    """Context in which every round is repeated edge by edge; yields counts of the cases, and the
    differences.
    """
    seen, wrong, match = Counter[str](), list[Any](), Rounds._match

    def both(self: Rounds, front: Front) -> Any:
        known = self._totals.copy()
        earlier = _reads(self)
        done, matched, bare = match(self, front)
        # Residuals are checked here, to compare results with the separate probes'; `run` checks
        # them again.
        made, ends = self._checked(front.edges[:done], matched, bare)
        general = replace(self.prober, most=ANY, tags=None, reads=ReadMeters())
        first, meters = 0, defaultdict[int, EdgeStatistics](EdgeStatistics)
        for edge, end in zip(front.edges[:done].tolist(), ends.tolist(), strict=True):
            rule = self._program.rules[edge[2]]
            sent = self._partial(front, edge[0], edge[1], edge[2])
            alone = general._probe(sent, rule, self.access[rule.out], meters[edge[2]])
            together = self._partial(made, first, end, edge[2]) if end > first else None
            if tuples(together) != tuples(alone):
                wrong.append((rule.out, tuples(together), tuples(alone)))
            first = end
            seen["edges"] += 1
            seen["with bounds"] += bool(rule.bounds)
            seen["without a match"] += alone is None
            seen["with many"] += alone is not None and alone.length > sent.length
            seen["inclusive"] += bool(rule.inclusive)
            seen["deeper"] += len(front.which) > 1
            seen["joined stores"] += bool(rule.fill)
            seen["residuals"] += bool(rule.residuals)
            seen["several parts"] += len(rule.key) > 1
            seen["strings"] += any(part.type == "string" for part in rule.key)
            seen["stored"] += rule.out in self.prober.layout.inserts
        accounted = _accounted(self, known)
        for number, meter in meters.items():
            out = self._program.rules[number].out
            if counts(accounted[out]) != counts(meter):
                wrong.append((out, accounted[out], meter))
        seen["many edges"] += done > 20
        seen["cut short"] += done < len(front.edges)
        now = _reads(self)
        gained = {
            name: {
                field: getattr(now[name], field) - getattr(earlier.get(name, Reads()), field)
                for field in ("probes", "found", "matches", "by_batch")
            }
            | {"places": places(now[name]) - places(earlier.get(name, Reads()))}
            for name in now
        }
        wanted = {
            (store, index): {
                "probes": one.probes,
                "found": one.found,
                "matches": one.matches,
                "by_batch": one.by_batch,
                "places": places(one),
            }
            for store, by_index in read(general).items()
            for index, one in by_index.items()
        }
        gained = {name: one for name, one in gained.items() if any(one.values())}
        if gained != {name: one for name, one in wanted.items() if any(one.values())}:
            wrong.append((gained, wanted))
        self._totals[:, -1] = known[:, -1]
        return done, matched, bare

    with patch.object(Rounds, "_match", both):
        yield seen, wrong


def _accounted(rounds: Rounds, since: Ints) -> dict[str, EdgeStatistics]:
    """Return edge -> counts that this run of rounds has added to the totals ``since``."""
    meters = defaultdict[str, EdgeStatistics](EdgeStatistics)
    alike = copy(rounds)
    alike.prober = replace(rounds.prober, meters=meters, reads=ReadMeters())
    alike._totals = rounds._totals - since
    alike._targets = Targets(rounds._program, rounds.prober, rounds._tables)
    alike._account()
    return meters


def _reads(rounds: Rounds) -> dict[tuple[str, str], Reads]:
    """Return (store, index) -> what this run of rounds has counted so far."""
    found: dict[tuple[str, str], Reads] = {}
    for name, line in zip(rounds._targets.names, rounds._targets.reads.tolist(), strict=False):
        probes, hit, matches, by_batch, by_time, held, looked = line
        one = Reads(probes, hit, matches, by_batch, 0, by_time, held, looked)
        found[name] = found.get(name, Reads()) + one
    return found


def assert_alike(scenario: Generated, seed: int, batches: int, url: str) -> Counter[str]:
    with compared() as (seen, wrong):
        verdict, _ = run_local(scenario, draw(seed, batches), url)
    assert not verdict.problems, f"seed {seed}: {verdict}"
    assert not wrong, wrong[:2]
    return seen


def test_many_edges_together_are_each_alone(redis: str, tmp_path: Path) -> None:
    seen = assert_alike(generate_crowded(6, tmp_path, 40), 6, BATCHES, redis)
    assert all(seen[name] for name in WANTED), seen


def test_keys_of_every_kind_and_stores_of_joined_rows(redis: str, tmp_path: Path) -> None:
    with compared() as (seen, wrong):
        for seed in (13, 21, 27):
            local(seed, tmp_path / str(seed), redis)
    assert not wrong, wrong[:2]
    names = ("joined stores", "residuals", "several parts", "strings")
    assert min(seen[name] for name in names) > 5, seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_edges_by_many_scripts(seed: int, redis: str, tmp_path: Path) -> None:
    assert_alike(generate_crowded(seed, tmp_path, 40), seed, BATCHES, redis)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_hundreds_of_queries_together(seed: int, redis: str, tmp_path: Path) -> None:
    assert_alike(generate_crowded(seed, tmp_path, 300), seed, BATCHES, redis)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_edges_beside_intermediate_results_and_null_keys(
    first: int, redis: str, tmp_path: Path
) -> None:
    with compared() as (seen, wrong):
        for seed in range(first, first + 20):
            # Whether such a run is exact is tested by ``test_random_scenarios``.
            local(seed, tmp_path / str(seed), redis)
            assert not wrong, (seed, wrong[:2])
    # Most of these scenarios have keys that are not integers.
    assert seen["edges"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(300, 330, 10))
def test_edges_that_feed_and_ask_stores_of_intermediate_results(
    first: int, redis: str, tmp_path: Path
) -> None:
    """With few queries, plans keep intermediate results, and change to plans that do not."""
    seen = Counter[str]()
    for seed in range(first, first + 10):
        scenario = generate_crowded(seed, tmp_path / str(seed), 16)
        seen += assert_alike(scenario, seed, BATCHES, redis)
    assert seen["stored"] > 100

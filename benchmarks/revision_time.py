"""CPU time of the service's decision on a revision, by number of queries.

``python -m benchmarks.revision_time [--json] [--queries 10 100 1000] [--rounds 5]``

The service's decision function (``planning.revisions.decide``) runs for random natural joins of
three of 100 relations (of ten for up to ten queries). Every step of the running plan has been
measured in :data:`PERIODS` periods with random hits per pair, so the plan, made for equal hits, is
no longer the best. *first*: including the parsing of the running ruleset and of all periods.
*again*: the next decision on the same ruleset, with one new period. Times are CPU seconds; both
include samples, forecasts, search and the compilation of rules.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

from anabranch_contract.codec import dumps
from anabranch_contract.collection import collect_rarely
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.plans.steps import steps_of
from anabranch_contract.protocol.interims import Interim, StepMeasures
from anabranch_contract.protocol.measurements import EdgeStatistics, Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_planner.passes import optimise
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.running import RunningPlan, running_plan
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.replanning.periods import Measured, Periods
from anabranch_service.planning.replanning.revisions import RevisionInput, decide
from benchmarks.planner.random_queries import natural
from benchmarks.report.figures import Spread, document, line, tell

#: Number of measured periods.
PERIODS = 20
_LONG = DataType(TypeKind.BIGINT)


def running(count: int, seed: int, parallelism: int = 2) -> tuple[Ruleset, tuple[JoinQuery, ...]]:
    """Return the ruleset of ``count`` queries, planned with equal statistics for all relations."""
    relations = 10 if count <= 10 else 100
    queries, statistics = natural(seed, relations=relations, count=count, size=3)
    plan = optimise(
        queries,
        statistics,
        Options(parallelism=parallelism, deadline=Deadline(time.monotonic, seconds=10.0)),
    )
    columns = {m.relation: set[str]() for q in queries for m in q.members}
    for query in queries:
        relation_of = {m.label: m.relation for m in query.members}
        for key_class in query.classes:
            for attribute in key_class.members:
                columns[relation_of[attribute.label]].add(attribute.attribute)
    streams = tuple(
        Stream(StreamName(name), tuple((c, _LONG) for c in sorted(found)))
        for name, found in sorted(columns.items())
    )
    rules = compile_ruleset(plan, queries, streams, epoch=1, parallelism=parallelism, sinks={})
    return rules, queries


def documents(rules: Ruleset, seed: int, selectivities: int = 0) -> list[str]:
    """Return periods in which steps have random selectivities (by the seed ``selectivities``);
    ``seed`` changes the newest one.
    """
    steps, rng = sorted(set(steps_of(rules).values())), Random(selectivities)
    hits = [10 ** rng.uniform(0, 4) for _ in steps]
    arrivals = {str(r.id): 1000 for r in rules.relations}

    def period(number: int) -> Interim:
        noise = Random(seed + number) if number == PERIODS else Random(number)
        measures = tuple(
            StepMeasures.of(
                step,
                EdgeStatistics(
                    1000, int(n), 0.001, 10**6, int(n * noise.uniform(0.9, 1.1)), min(int(n), 1000)
                ),
            )
            for step, n in zip(steps, hits, strict=True)
        )
        return Interim(3.0 * number, 3.0, 1, 1, number, 1, arrivals, measures)

    return [dumps(period(number)) for number in range(1, PERIODS + 1)]


def question(found: RunningPlan, periods: tuple[Measured, ...]) -> RevisionInput:
    """Return the input of a decision, as the service assembles it."""
    arrived = {str(r.id): 1000 * PERIODS for r in found.ruleset.relations}
    return RevisionInput(
        periods=periods,
        length=PERIODS,
        snapshot=Snapshot(0, PERIODS, PERIODS, arrived),
        running=found,
        options=PlanningSettings(
            optimizer=Optimizer.CLASH, objective=Objective.TUPLES, parallelism=2
        ),
        records=(),
        newest=0,
        now=datetime(2026, 1, 1, tzinfo=UTC),
        mode=Mode.LIVE,
    )


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Measure decisions on ``rounds`` random problems of ``count`` queries."""
    first, again, published = [], [], 0
    for seed in range(rounds):
        rules, queries = running(count, seed)
        texts, later = documents(rules, 1), documents(rules, 2)
        started = time.process_time()
        found = running_plan(rules, queries)
        periods = Periods(found.inference)
        published += decide(question(found, periods.read(texts))).ruleset is not None
        first.append(time.process_time() - started)
        started = time.process_time()
        decide(question(found, periods.read(later)))
        again.append(time.process_time() - started)
        tell(f"{count} queries, {seed + 1} of {rounds}: {first[-1]:.3f} s, again {again[-1]:.3f} s")
    return {
        "queries": count,
        "first": Spread.of(first).rounded(4),
        "again": Spread.of(again).rounded(4),
        "published": published,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description="CPU time of decisions on revisions")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--queries", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    collect_rarely()  # as the service does
    found = [measure(count, options.rounds) for count in options.queries]
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    everything = document("revision-time", settings, load) | {"decisions": found}
    if options.json:
        sys.stdout.write(line(everything) + "\n")
        return 0
    for one in found:
        sys.stdout.write(
            f"{one['queries']} queries: {one['first']['median']:.3f} s of CPU, again "
            f"{one['again']['median']:.3f} s; {one['published']} of {options.rounds} revised\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

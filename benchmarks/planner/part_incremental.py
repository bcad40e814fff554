"""Part ``incremental``: one query added to a thousand planned queries.

As a main program this module is the worker: for each case it plans all queries except the last one
(without a target for the time), adds the last one, and then plans all of them from scratch for
comparison.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.steady import Settled
from anabranch_planner.passes import optimise
from anabranch_planner.plans import optimise as plans
from anabranch_planner.replan.session import Session
from anabranch_planner.solvers.deadline import Deadline
from benchmarks.planner.runs import (
    Case,
    Drawn,
    Run,
    Shape,
    compile_validated,
    cpu_seconds,
    draw,
    summary,
    told,
)
from benchmarks.planner.targets import TARGETS, Kind, Target, memory_verdicts, verdict
from benchmarks.planner.worker import measure, peak_bytes, say
from benchmarks.report.figures import Spread, tell

#: The three runs that a worker reports per case, in this order.
STEPS = ("first", "added", "improved")
_SMALL = Shape(5, 4, 3)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the part; ``limit``: seconds for planning from scratch, before and afterwards."""

    seeds: int
    parallelisms: Sequence[int]
    limit: float
    targets: Sequence[Target] = TARGETS


def measure_incremental(options: Options) -> dict[str, Any]:
    """Measure every target on one added query."""
    groups: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    for target in options.targets:
        if target.kind is not Kind.ADDED or target.shape is None:
            continue
        more = replace(target.shape, queries=target.shape.queries + 1)
        for parallelism in options.parallelisms:
            cases = [
                Case(more, seed, parallelism=parallelism, deadline=options.limit)
                for seed in range(options.seeds)
            ]
            done = measure(cases, __name__, per_case=len(STEPS))
            runs = {name: done.runs[i :: len(STEPS)] for i, name in enumerate(STEPS)}
            added = runs["added"]
            groups.append(
                {
                    "shape": str(target.shape),
                    "parallelism": parallelism,
                    "peak_bytes": done.peak_bytes,
                    "planning": Spread.of(r.planning for r in added).rounded(4),
                    **{name: summary(some) for name, some in runs.items()},
                }
            )
            verdicts.append(_judge(target, parallelism, added))
            tell(
                f"added to {target.shape}, parallelism {parallelism}: "
                f"{groups[-1]['added']['seconds']['median']:.3f} s, planning alone "
                f"{groups[-1]['planning']['median']:.3f} s, "
                f"gap {groups[-1]['added']['gap']['median']:.3%}"
            )
    for parallelism in options.parallelisms if groups else ():
        peaks = [g["peak_bytes"] for g in groups if g["parallelism"] == parallelism]
        verdicts += memory_verdicts(
            options.targets, peaks, parallelism=parallelism, part="incremental"
        )
    return {"groups": groups, "verdicts": verdicts}


def _judge(target: Target, parallelism: int, added: Sequence[Run]) -> dict[str, Any]:
    seconds = Spread.of(r.seconds for r in added).rounded(4)
    planning = Spread.of(r.planning for r in added).rounded(4)
    gap = Spread.of(r.gap for r in added).rounded(6)
    met = target.met(seconds["median"]) and gap["median"] <= target.within
    cpu = Spread.of(r.cpu for r in added).rounded(4)
    about = {"parallelism": parallelism, "gap": gap, "planning": planning, "cpu": cpu}
    return verdict(target, seconds, met=met, **about)


# --- the worker's side -------------------------------------------------------------------------


def steps(case: Case) -> list[Run]:
    """Plan a case without its last query, then with it from that plan, then with it
    from scratch.
    """
    drawn = draw(case.shape, case.seed, case.environment)
    *most, last = drawn.queries
    session = Session()
    options = plans.Options(
        objective=case.objective,
        parallelism=case.parallelism,
        solver=case.solver,
        seed=case.seed,
        threads=case.threads,
    )

    def follow(queries: Sequence[JoinQuery], limit: Deadline) -> Plan:
        return session.plan(queries, Settled(drawn.statistics), replace(options, deadline=limit))

    def anew(limit: Deadline) -> Plan:
        return optimise(drawn.queries, drawn.statistics, replace(options, deadline=limit))

    fewer = replace(drawn, queries=most)
    return [
        _step(case, fewer, case.deadline, lambda limit: follow(most, limit)),
        _step(case, drawn, None, lambda limit: follow([*most, last], limit)),
        _step(case, drawn, case.deadline, anew),
    ]


def _step(case: Case, drawn: Drawn, seconds: float | None, make: Callable[[Deadline], Plan]) -> Run:
    gc.collect()
    began, cpu = time.perf_counter(), cpu_seconds()
    deadline = Deadline(time.perf_counter, seconds=seconds)
    plan = make(deadline)
    with deadline.phase("ruleset"):
        compile_validated(plan, drawn, case.parallelism)
    took, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    return told(plan, drawn.queries, deadline, took, cpu)


def main() -> int:
    """Main program of the worker."""
    cases = [Case.from_json(json.loads(text)) for text in sys.stdin]
    for case in cases[:1]:
        steps(replace(case, shape=_SMALL))
    for case in cases:
        for run in steps(case):
            say(asdict(run))
    say({"peak_bytes": peak_bytes()})
    return 0


if __name__ == "__main__":
    sys.exit(main())

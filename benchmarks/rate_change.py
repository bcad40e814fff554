"""Number of epochs after which plans follow a change of rates, with forecasts and with history
alone.

``python -m benchmarks.rate_change [--json] [--histories 20 200 2000] [--after 400] [--falling]``

A four-way chain ``R(a) S(a,b) T(b,c) U(c)`` is planned as in the service, without Spark or Redis.
The numbers of tuples per batch are Poisson distributed, and keys are drawn uniformly from constant
domains. After ``--histories`` epochs the rate of U rises to ten times its value (``--falling``:
falls to a tenth). At the end of each epoch plans are made, charged for changes from the previous
plan, with two kinds of statistics: of all history (``history``), and with forecasts of the next
epoch (``ahead``).

``epochs``: number of epochs from the change until plans cost, for five epochs in a row, at most a
tenth more than the plan made with the true rates and stored rows (such a difference is tolerated by
the switching charge). None: not within ``--after`` epochs. The epoch in which the rates change
counts as the first. In live mode a plan is in force an epoch later. ``flips``: changes of the plan
in the ``--steady`` epochs before the change. ``worst``: the greatest cost of a plan after the
change, as a multiple of the cost of the plan made with the true rates.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anabranch_contract.codec import dumps
from anabranch_contract.plans.plan import Plan
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import JoinQuery, RelationId, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.footprint import Footprint, footprint
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics, measured
from anabranch_planner.cost.validate import cost_of
from anabranch_planner.forecast.rates import PERIODS
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.demands import Switching
from anabranch_service.planning.rates import foresee
from benchmarks.report.figures import document, line, tell

_COLUMNS = {"R": ("a",), "S": ("a", "b"), "T": ("b", "c"), "U": ("c",)}
_SQL = "SELECT R.a FROM R, S, T, U WHERE R.a = S.a AND S.b = T.b AND T.c = U.c"
#: Batches per epoch, and per measurement period.
EPOCH, PERIOD = 6, 2
#: Microseconds of event time per batch.
BATCH = 1_000_000
#: Number of epochs for which plans must stay good, and the cost ratio up to which a plan is good.
STAY, GOOD = 5, 1.1


@dataclass(frozen=True, slots=True)
class Case:
    """A query and the rates of its streams.

    Attributes:
        window: length of windows in batches; None: all history.
        before, after: tuples per batch, before and after the change.
        values: column -> distinct values in its domain.
    """

    window: int | None
    before: dict[str, float]
    after: dict[str, float]
    values: dict[str, int]


def cases(history: int) -> dict[str, Case]:
    """Return three cases: a short window, one of ten epochs, and none. In the last case, whose
    stores grow, the number of keys is such that after ``history`` epochs a tuple has a given number
    of partners.
    """
    slow = {"R": 100.0, "S": 100.0, "T": 100.0, "U": 20.0}
    fast = slow | {"U": 200.0}
    return {
        "window 6": Case(6, slow, fast, {"a": 600, "b": 600, "c": 300}),
        "window 60": Case(60, slow, fast, {"a": 6000, "b": 6000, "c": 3000}),
        "no window": Case(
            None, slow, fast, {"a": 3000 * history, "b": 3000 * history, "c": 1500 * history}
        ),
    }


def joined(case: Case) -> JoinQuery:
    """Return the query of a case."""
    integer, at = parse_type("bigint"), parse_type("timestamp")
    streams = {
        s: Stream(StreamName(s), (*((c, integer) for c in columns), ("at", at)), event_time="at")
        for s, columns in _COLUMNS.items()
    }
    window = None if case.window is None else case.window * BATCH
    return parse_sql("q", _SQL, streams, window)


def epochs(case: Case, change: int, seed: int, mode: Mode) -> Iterator[tuple[Snapshot, list[str]]]:
    """Yield a snapshot and the newest periods per epoch; rates change in epoch ``change``."""
    rng = np.random.default_rng(seed)
    counts, texts = dict.fromkeys(_COLUMNS, 0), []
    batch, epoch = 0, 0
    while True:
        for _ in range(EPOCH // PERIOD):
            rates = case.after if epoch >= change else case.before
            fresh = {s: int(rng.poisson(r * PERIOD)) for s, r in rates.items()}
            counts = {s: counts[s] + fresh[s] for s in counts}
            batch += PERIOD
            if mode is Mode.LIVE:
                texts.append(dumps(Interim(batch, PERIOD, epoch, epoch, batch, PERIOD, fresh)))
        snapshot = Snapshot(
            epoch,
            EPOCH,
            batch,
            arrivals=counts,
            distincts={
                s: {c: float(min(case.values[c], counts[s])) for c in columns}
                for s, columns in _COLUMNS.items()
            },
            spans=dict.fromkeys(_COLUMNS, batch * BATCH),
        )
        if mode is Mode.STEP:
            texts.append(dumps(snapshot))
        texts = texts[-PERIODS - 1 :] if mode is Mode.STEP else texts[-PERIODS:]
        yield snapshot, texts
        epoch += 1


def known(case: Case, snapshot: Snapshot, change: int) -> Statistics:
    """Return an oracle's statistics, with the rates of the next epoch and past arrivals."""
    past, later = min(snapshot.epoch + 1, change), max(snapshot.epoch + 1 - change, 0)
    rates = case.after if later else case.before
    total = past + later
    return replace(
        measured(snapshot),
        ahead=PeriodForecast(
            1 / total,
            {RelationId(s): rate * EPOCH for s, rate in rates.items()},
            {RelationId(s): ((later / total, rates[s] * EPOCH * later),) for s in rates}
            if later
            else {},
        ),
    )


def planned(query: JoinQuery, statistics: Statistics, running: Footprint | None) -> Plan:
    """Return the best plan, charged for changes from the ``running`` one."""
    switching = None if running is None else Switching(running)
    return optimise([query], statistics, Options(switching=switching))


def answered(
    case: Case, history: int, after: int, mode: Mode, steady: int, seed: int
) -> dict[str, Any]:
    """Return, for both statistics, epochs until plans follow the change, and earlier
    plan changes.
    """
    query = joined(case)
    running: dict[str, Footprint | None] = {"history": None, "ahead": None}
    good = dict.fromkeys(running, 0)
    flips = dict.fromkeys(running, 0)
    found: dict[str, int | None] = dict.fromkeys(running)
    ratios: dict[str, list[float]] = {name: [] for name in running}
    for snapshot, texts in epochs(case, history, seed, mode):
        if snapshot.epoch < history - steady:
            continue
        if snapshot.epoch >= history + after or all(n is not None for n in found.values()):
            break
        truth = known(case, snapshot, history)
        best = planned(query, truth, None).cost
        for name in running:
            if found[name] is not None:
                continue
            past = name == "history"
            statistics = measured(snapshot) if past else foresee(snapshot, texts, mode)
            plan = planned(query, statistics, running[name])
            now = footprint(plan, [query])
            if snapshot.epoch < history:
                flips[name] += running[name] is not None and now != running[name]
            running[name] = now
            ratio = cost_of(plan, [query], truth) / best
            if snapshot.epoch >= history:
                ratios[name].append(ratio)
                good[name] = good[name] + 1 if ratio <= GOOD else 0
                if good[name] == STAY:
                    found[name] = snapshot.epoch - history + 2 - STAY
    return {
        name: {"epochs": found[name], "flips": flips[name], "worst": round(max(ratios[name]), 2)}
        for name in running
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--histories", type=int, nargs="+", default=[20, 200, 2000])
    parser.add_argument("--after", type=int, default=400)
    parser.add_argument("--steady", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--falling", action="store_true", help="U brings fewer after the change")
    options = parser.parse_args(arguments)
    rows, load = [], os.getloadavg()
    for history in options.histories:
        for name, case in cases(history).items():
            if options.falling:
                case = replace(case, before=case.after, after=case.before)
            for mode in Mode:
                begun = time.perf_counter()
                found = answered(case, history, options.after, mode, options.steady, options.seed)
                rows.append({"case": name, "mode": str(mode), "history": history, **found})
                tell(f"{rows[-1]} in {time.perf_counter() - begun:.1f} s")
    if options.json:
        settings = {k: v for k, v in vars(options).items() if k != "json"}
        sys.stdout.write(line(document("rate_change", settings, load) | {"rows": rows}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

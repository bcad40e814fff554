"""Effect of a change of the input on latency, with and without adaptation (CLASH, Fig. 8).

The query is the chain ``R(a), S(a,b), T(b,c), U(c)``, with neighbours at most ``window`` seconds of
event time apart. Input arrives by the clock, open loop (:mod:`pacing`); a tuple's event time is its
scheduled arrival.

Two systems run, and both adapt until the time at which the input changes. Then the ``static``
system keeps its plan, since its service is stopped.

``partners``: four streams have equal rates. At first few S tuples have partners in R and every one
has two in T; after the change every S tuple finds a hundred partners in R and none in T.

``rates``: at first R, S and T have a thousand times as many tuples as U, and their join is large;
so storing it is not worthwhile for the few tuples of U. After the change U has a thousand times as
many tuples as each of the others. Each tuple of U finds ten partners in T; each of these finds ten
in S, and few of those find one in R. (A recorded stream has a constant rate. Rates here count the
tuples that pass the query's filter; other tuples are read and dropped.)
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery
from anabranch_client.rest.types import spark_type
from anabranch_contract.plans.ruleset import ProbeRule, Ruleset, RulesetId
from anabranch_runtime.control import Control
from anabranch_runtime.errors import PipelineError
from benchmarks.command import Benchmark, made, quantile, spread
from benchmarks.report.charts import Line, lines
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime.command import master, run
from benchmarks.runtime.pacing import Latency, Pacer
from benchmarks.session import Session, session

EXPERIMENTS = ("partners", "rates")
MODES = ("static", "adaptive")
_KEYS = {"r": ("a",), "s": ("a", "b"), "t": ("b", "c"), "u": ("c",)}
#: Ratio of the rates of a fast and of a slow stream.
_FASTER = 1000
#: First of the key values that only tuples after the change have, and first of the values without
#: partners.
_LATER, _NOBODY = 10**9, 2 * 10**9


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--rate", type=float, default=50_000.0, help="tuples/s, all streams")
    parser.add_argument("--window", type=float, default=4.0, help="seconds")
    parser.add_argument("--before", type=float, default=20.0, help="seconds before the change")
    parser.add_argument("--after", type=float, default=40.0, help="seconds after it")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds of input in a batch")
    parser.add_argument("--warm-up", type=int, default=8, help="batches before the clock starts")
    parser.add_argument("--epoch-batches", type=int, default=6)
    parser.add_argument("--partners", type=int, default=100, help="in R, after the change")
    parser.add_argument("--runs", type=int, default=3)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all experiments; in each, the two systems alternate."""
    found = []
    for experiment in options.experiments:
        streams = generate(made(home / experiment), experiment, options)
        runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
        for _ in range(options.runs):
            for mode in MODES:
                try:
                    one = _run(options, home / "run", streams, mode)
                finally:
                    shutil.rmtree(home / "run", ignore_errors=True)
                tell(f"{experiment}, {mode}: p50 {one['p50']:.2f} s, last {one['last']:.2f} s")
                runs[mode].append(one)
        found.append(
            {
                "experiment": experiment,
                "change": options.before,
                "results": runs["static"][0]["results"],
                "modes": {mode: _summary(done) for mode, done in runs.items()},
            }
        )
    return {"experiments": found}


def query(window: float) -> DemoQuery:
    """Return the chain query; ``window`` in seconds."""
    micros = round(window * 1e6)

    def near(one: str, other: str) -> str:
        reach = f"INTERVAL '{micros}' MICROSECOND"
        return f"{one}.ts BETWEEN {other}.ts - {reach} AND {other}.ts + {reach}"

    return DemoQuery(
        "chain",
        "r.n AS rn, s.n AS sn, t.n AS tn, u.n AS un",
        f"r JOIN s ON r.a = s.a AND {near('r', 's')} AND r.live AND s.live "
        f"JOIN t ON s.b = t.b AND {near('s', 't')} AND t.live "
        f"JOIN u ON t.c = u.c AND {near('t', 'u')} AND u.live",
        ("r", "s", "t", "u"),
    )


# --- input -------------------------------------------------------------------------------------


def generate(
    folder: Path, experiment: str, options: argparse.Namespace
) -> tuple[RecordedStream, ...]:
    """Write the four streams of an experiment."""
    seconds = options.before + options.after + options.warm_up * options.interval
    change = options.before + options.warm_up * options.interval
    batches = round(seconds / options.interval)
    per_batch = max(round(options.rate / len(_KEYS) * options.interval), 1)
    rows = per_batch * batches
    tau = np.arange(rows) / per_batch * options.interval
    after = tau >= change
    keys, found = {"partners": _partners_key, "rates": _rates_key}[experiment], []
    for number, name in enumerate(_KEYS):
        draw = np.random.default_rng(11 + number)
        columns = {key: keys(draw, name, key, after, options) for key in _KEYS[name]}
        live = np.ones(rows, dtype=bool)
        if experiment == "rates":
            live = (after if name == "u" else ~after) | (np.arange(rows) % _FASTER == 0)
        times = pa.array((tau * 1e6).astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))
        table = pa.table(
            {"ts": times, **columns, "live": live, "n": np.arange(rows, dtype=np.int64)}
        )
        path = folder / f"{name}.parquet"
        pq.write_table(table, path)
        found.append(
            RecordedStream(
                name=name,
                path=path,
                rows_per_batch=per_batch,
                rows=rows,
                columns=tuple((c.name, str(spark_type(c.type))) for c in table.schema),
                options={"event_time": "ts", "lateness": "1 second"},
            )
        )
    return tuple(found)


def _partners_key(
    draw: np.random.Generator, stream: str, key: str, after: Any, options: argparse.Namespace
) -> Any:
    """Generate a key column; a tuple finds ``reach`` / (number of values) partners.

    Before the change (and, except for S, after it) these are 0.1 partners by ``a``, two by ``b``
    and one by ``c``.
    """
    # A tuple meets the tuples that arrived up to one window before it.
    reach = options.rate / len(_KEYS) * options.window
    number = {"a": reach * 10, "b": reach / 2, "c": reach}[key]
    early = draw.integers(0, max(int(number), 1), len(after))
    if key == "a":
        late = _LATER + draw.integers(0, max(int(reach / options.partners), 1), len(after))
    elif stream == "s":
        late = _NOBODY + np.arange(len(after))
    else:
        late = early
    return np.where(after, late, early)


def _rates_key(
    draw: np.random.Generator, stream: str, key: str, after: Any, options: argparse.Namespace
) -> Any:
    """Generate a key column: before the change a tuple of S finds one partner in R and two in T;
    after it, a tuple of T finds ten in S, a tuple of S few in R, and a tuple of U ten in T.
    """
    reach = options.rate / len(_KEYS) * options.window
    early = draw.integers(0, max(int({"a": reach, "b": reach / 2, "c": reach}[key]), 1), len(after))
    slow = reach / _FASTER
    number = {"a": slow * 50, "b": slow / 10, "c": slow / 10}[key]
    return np.where(after, _LATER + draw.integers(0, max(int(number), 1), len(after)), early)


# --- one run -----------------------------------------------------------------------------------


def _run(
    options: argparse.Namespace,
    home: Path,
    streams: tuple[RecordedStream, ...],
    mode: str,
) -> dict[str, Any]:
    chain = query(options.window)
    batches = streams[0].batches
    with session(
        home,
        streams,
        [chain],
        master=master(options),
        parallelism=options.parallelism,
        epoch_batches=options.epoch_batches,
    ) as system:
        system.start()
        change = options.warm_up + round(options.before / options.interval)

        def before(batch: int) -> None:
            if mode == "static" and batch == change:
                _end_service(system)

        pacer = Pacer(system, batches, options.interval, options.warm_up, before)
        pacer.start()
        try:
            system.wait_for_batches(batches)
        finally:
            pacer.stop()
        _, results = system.finish([chain])
        log = system.log()
        found = pacer.latencies(log)
        used = {b.ruleset: b.batch for b in reversed(log)}
        plans = _plans(system, used)
    sample = [x for one in found for x in one.sample()]
    return {
        "p50": quantile(sample, 0.5),
        "p99": quantile(sample, 0.99),
        "greatest": max(sample),
        "last": found[-1].least,
        "recovered": _recovered(found, options),
        "latencies": [(one.at, one.least + one.interval / 2) for one in found],
        "plans": plans,
        "results": {name: one.results for name, one in results.items()},
    }


def _end_service(system: Session) -> None:
    """Stop the service; the runtime continues with the newest ruleset."""
    service = next(c for c in system.pipeline.children if c.name == "service")
    system.pipeline.children.remove(service)
    service.stop()


def _recovered(found: list[Latency], options: argparse.Namespace) -> float | None:
    """Return the seconds from the change until latency stays below twice its earlier median."""
    calm = [x for one in found if one.at <= options.before for x in one.sample()]
    if not calm:
        return None
    limit = 2 * quantile(calm, 0.5)
    high = [one.at for one in found if one.least + one.interval / 2 > limit]
    if not high:
        return 0.0
    return None if high[-1] >= found[-1].at else max(high[-1] - options.before, 0.0)


def _plans(system: Session, used: dict[str, int]) -> list[dict[str, Any]]:
    """Return each plan that differs from the previous one: first batch, MIRs, probe order of S."""
    control = Control(system.pipeline.redis_url, system.pipeline.spec.namespace)
    found: list[dict[str, Any]] = []
    for name, batch in sorted(used.items(), key=lambda item: item[1]):
        with suppress(PipelineError):
            plan = described(control.ruleset(RulesetId.parse(name)))
            if not found or found[-1] | plan != found[-1]:
                found.append({"batch": batch, **plan})
    return found


def described(rules: Ruleset) -> dict[str, Any]:
    """Return the stored intermediate results, and the probe orders that produce results."""
    kept = {"".join(map(_stream, s.relations)) for s in rules.stores if len(s.members) > 1}
    return {"mirs": sorted(kept), "orders": {start: _order(rules, start) for start in _KEYS}}


def _order(rules: Ruleset, start: str) -> str:
    """Return the stores that an arriving tuple of ``start`` probes to produce results."""
    by_out = {p.out: p for p in rules.probe_rules}
    for output in rules.output_rules:
        rule: ProbeRule | None = by_out[output.edge]
        assert rule is not None  # the chain has more than one relation
        first, steps = _stream(rule.start), list[str]()
        while rule is not None:
            steps.append("".join(map(_stream, rule.members)))
            rule = by_out.get(rule.edge)
        if first == start:
            return ">".join([start, *reversed(steps)])
    return start


def _stream(relation: str) -> str:
    """Return the name of a relation's stream, without the digest of its filter.

    >>> _stream("r[247610f4]")
    'r'
    """
    return relation.partition("[")[0]


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("p50", "p99", "greatest", "last")
    recovered = [r["recovered"] for r in runs if r["recovered"] is not None]
    times = [at for at, _ in runs[0]["latencies"]]
    middle = [statistics.median(r["latencies"][i][1] for r in runs) for i in range(len(times))]
    return {
        **{name: spread((r[name] for r in runs), 3) for name in names},
        "recovered": spread(recovered, 2) if len(recovered) == len(runs) else None,
        "over_time": [[round(at, 2), round(s, 3)] for at, s in zip(times, middle, strict=True)],
        "plans": runs[-1]["plans"],
    }


# --- what people read --------------------------------------------------------------------------


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: latencies, and the plans of the last run of each system."""
    latency, plans = [], []
    for one in entry["experiments"]:
        for mode, found in one["modes"].items():
            recovered = found["recovered"]
            latency.append(
                (
                    *(one["experiment"], mode),
                    *(shown(found[k], 2) for k in ("p50", "p99", "greatest", "last")),
                    "never" if recovered is None else shown(recovered, 1),
                )
            )
            for plan in found["plans"]:
                orders = ", ".join(plan["orders"].values())
                kept = " ".join(plan["mirs"]) or "none"
                plans.append((one["experiment"], mode, f"{plan['batch']}", kept, orders))
    return [
        Grid(
            "latency",
            (
                *("", "system", "p50 s", "p99 s", "greatest s", "last batch s"),
                "recovered after s",
            ),
            tuple(latency),
            texts=2,
        ),
        Grid(
            "plans",
            ("", "system", "from batch", "intermediate results kept", "probe orders"),
            tuple(plans),
            texts=5,
        ),
    ]


def charts(entry: dict[str, Any]) -> dict[str, str]:
    """Return chart name -> SVG: latency over time."""
    found = {}
    for one in entry["experiments"]:
        series = [
            Line(mode, tuple((at, s) for at, s in modes["over_time"]))
            for mode, modes in one["modes"].items()
        ]
        what = {
            "partners": f"S finds {entry['settings']['partners']} partners in R and none in T",
            "rates": f"U sends {_FASTER} tuples for each one of R, S and T",
        }[one["experiment"]]
        title = f"From second {one['change']:g} on, {what}"
        found[f"adaptation-{one['experiment']}"] = lines(
            title, "seconds", "latency in seconds", series, logarithmic=True
        )
    return found


BENCHMARK = Benchmark(
    "adaptation", "latency through a change, static and adaptive", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))

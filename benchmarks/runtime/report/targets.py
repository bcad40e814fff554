"""Targets of the runtime's benchmarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report.grids import Grid
from benchmarks.report.targets import SIZES, Figure, Target, table
from benchmarks.runtime.sharing import name_of

_GIGA = 10**9
#: Target: number of aggregating queries -> maximum seconds until all of them show a batch.
_SHOWN = {20: 0.5, 60: 1.0, 500: 2.0}
#: Seconds of input per batch for which latency has targets; with shorter batches the system
#: sometimes falls behind.
_INTERVAL = 0.1
#: Target: number of queries -> minimum ratios of throughput and of state, compared with plans
#: without sharing.
_WANTED = {5: (2.6, 3.1), 10: (3.5, 5.3)}


def targets(newest: Mapping[str, dict[str, Any]]) -> Grid:
    """Return a table of all targets with figures; ``newest``: benchmark -> its newest line."""
    return table(_READERS, newest)


def _sharing(entry: dict[str, Any]) -> Iterator[Target]:
    rates = {0.1: 200_000.0, 1.0: 400_000.0}
    for work in entry["workloads"]:
        count, scale = work["queries"], work["scale"]
        runs = len(work["runs"]) // len(work["optimizers"])
        name = f"{name_of(work)}: "
        joint = None if "random" in work else work["optimizers"].get("clash")
        if joint is not None and count == 5 and scale in rates:
            rate = Figure.of(joint["tuples_per_s_without_enter"], runs)
            what = f"{name}input tuples/s, not counting the wait for the planner"
            yield Target(what, rate, rates[scale], True, 0)
        if joint is not None and count == 5 and scale == 0.1:
            cpu = Figure.of(joint["cpu_seconds"], runs)
            yield Target(f"{name}CPU", cpu, 5, False, 1, " s")
            peak = Figure.of(joint["peak_pss_bytes"], runs, _GIGA)
            yield Target(f"{name}peak memory (PSS)", peak, 1.5, False, 2, " GB")
        faster, smaller = _WANTED[count]
        ratios = work["ratios"]
        if "individual" in ratios:
            one = ratios["individual"]
            yield Target(
                f"{name}throughput, joint against individual plans",
                Figure.of(one["throughput_without_enter"], runs), faster, True, 2, " ×",
            )  # fmt: skip
            if "random" in work:
                cpu = Figure.of(one["cpu"], runs)
                what = f"{name}CPU, individual against joint plans"
                yield Target(what, cpu, faster, True, 2, " ×")
            yield Target(
                f"{name}state, individual against joint plans",
                Figure.of(one["state"], runs, noise=SIZES), smaller, True, 3, " ×",
            )  # fmt: skip
        if "shared" in ratios:
            rate = Figure.of(ratios["shared"]["throughput_without_enter"], runs)
            what = f"{name}throughput, joint against shared plans"
            yield Target(what, rate, 1.5, True, 2, " ×")


def _separate(entry: dict[str, Any]) -> Iterator[Target]:
    faster, smaller = _WANTED[entry["queries"]]
    name = f"{entry['queries']} queries, SF {entry['scale']:g}: "
    found = {k: Figure.of(ratio, len(entry["runs"])) for k, ratio in entry["ratios"].items()}
    what = f"{name}throughput, one joint pipeline against one for each query"
    yield Target(what, found["throughput"], faster, True, 2, " ×")
    what = f"{name}CPU, of one pipeline for each query against one joint"
    yield Target(what, found["cpu"], faster, True, 2, " ×")
    what = f"{name}state, of one pipeline for each query against one joint"
    state = Figure.of(entry["ratios"]["state"], len(entry["runs"]), noise=SIZES)
    yield Target(what, state, smaller, True, 3, " ×")


def _queries(entry: dict[str, Any]) -> Iterator[Target]:
    runs = entry["settings"]["runs"]
    if "added" in entry:
        one = entry["added"]["written"]
        state = Figure.of(one["added_state_bytes"], runs)
        yield Target("a query whose joins run: added state", state, 0, False, 0, " bytes")
        kept = Figure.of(one["throughput_lost"], runs).map(lambda lost: 1 - lost)
        what = "a query whose joins run: throughput, of that without it"
        yield Target(what, kept.widened(), 0.98, True, 2, " ×")
        used = Figure.of(one["cpu_added"], runs).map(lambda added: 1 + added)
        what = "a query whose joins run: CPU, of that without it"
        yield Target(what, used.widened(), 1.02, False, 2, " ×")
    last = entry.get("growth", {}).get("last")
    for by, name in (("ratio", "time"), ("cpu_ratio", "CPU")) if last is not None else ():
        if last[by] is not None:
            both = ("seconds_more", "seconds_first") if by == "ratio" else ("cpu_more", "cpu_first")
            more, first = (Figure.of(last[one], runs) for one in both)
            what = f"one more query at {last['to']}, of the cost of the first ({name})"
            yield Target(what, more.over(first), 0.1, False, 3, " ×")


def _rewire(entry: dict[str, Any]) -> Iterator[Target]:
    revised: dict[bool, list[float]] = defaultdict(list)
    for one in entry["rewires"]:
        revised[one["kind"] == "revision"].append(one["ratio"])
    for revision, what, limit in (
        (False, "a batch during a rewire, of its neighbours'", 1.3),
        (True, "the first batch of a revision, of its neighbours'", 1.1),
    ):
        if revision in revised:
            yield Target(what, Figure.median(revised[revision]), limit, False, 2, " ×")


def _state_size(entry: dict[str, Any]) -> Iterator[Target]:
    for through in ("engine", "spark"):
        if through in entry:
            sizes, runs = entry[through]["sizes"], entry["settings"]["measured"]
            last, first = sizes[-1], sizes[0]
            what = (
                f"throughput at {last['stored']:,} stored tuples, of that at"
                f" {first['stored']:,} ({through})"
            )
            ratio = Figure.of(last["tuples_per_s"], runs).over(
                Figure.of(first["tuples_per_s"], runs)
            )
            yield Target(what, ratio, 0.85, True, 2, " ×")


def _fixed_cost(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["counts"]:
        if one["queries"] == 1:
            cycle = Figure.of(one["system_seconds"], entry["settings"]["rounds"], 0.001)
            yield Target("nearly empty batch with one query", cycle, 15, False, 0, " ms")
        if one["queries"] == 50:
            what = "nearly empty batch with 50 queries, of an empty foreachBatch"
            ratio = Figure.of(one["ratio"], entry["settings"]["rounds"])
            yield Target(what, ratio, 1.5, False, 2, " ×")


def _latency(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["rates"]:
        wanted = one["wanted"] == 50_000 and one["interval"] == _INTERVAL
        for figure, limit in (("p50", 0.06), ("p99", 0.25)) if wanted else ():
            found = Figure.of(one[figure], entry["settings"]["runs"])
            yield Target(f"latency at 50,000 tuples/s, {figure}", found, limit, False, 3, " s")


def _aggregates(entry: dict[str, Any]) -> Iterator[Target]:
    runs = entry["settings"]["batches"]
    for one in entry["counts"]:
        count = one["queries"]
        if count in _SHOWN:
            what = f"{count} aggregating queries over one join: from arrival until all show it"
            found = Figure.of(one["shown_seconds"], runs)
            yield Target(what, found, _SHOWN[count], False, 2, " s")
        if count == max(_SHOWN):
            what = f"{count} aggregating queries: a batch, of one of the joins alone"
            ratio = Figure.of(one["batch_seconds"], runs).over(
                Figure.of(one["joins_batch_seconds"], runs)
            )
            yield Target(what, ratio, 3, False, 2, " ×")


def _updates(entry: dict[str, Any]) -> Iterator[Target]:
    rounds = entry["settings"]["rounds"]
    if "others" in entry:
        one = entry["others"]
        beside = f"update of one row beside {one['results']:,} results of others"
        found = Figure.of(one["of_delete_and_insert"], rounds)
        yield Target(f"{beside}: CPU, of a delete and an insert", found, 1.1, False, 2, " ×")
        found = Figure.of(one["of_alone"], rounds)
        yield Target(f"{beside}: CPU, of one without them", found, 1.1, False, 2, " ×")
    if "own" in entry:
        many = entry["own"]["sizes"][-1]
        own = f"update of one row with {many['results']:,} results of its own"
        runs = many["cpu"]["runs"]
        allowed = entry["own"]["allowed_mib"]
        found = Figure.of(many["memory_mib"], runs)
        what = f"{own}: memory, beside an idle process"
        yield Target(what, found, allowed, False, 0, " MiB")
        found = Figure.of(many["after_over_before"], runs)
        yield Target(f"{own}: CPU of another row's next update", found, 1.3, False, 2, " ×")
    if "state" in entry:
        one = entry["state"]
        first, second = one["quarters"][:2], one["quarters"][2:]
        for name, what in (("bytes", "store"), ("table_bytes", "tables")):
            early, late = (max(q[name]["high"] for q in half) for half in (first, second))
            of = f"bytes of the {what} in the second half, greatest of the first"
            what = f"{one['updates']:,} updates of {one['keys']:,} keys: {of}"
            yield Target(what, Figure.counted(late / early), 1.05, False, 2, " ×")


_READERS = {
    "sharing": _sharing,
    "separate": _separate,
    "queries": _queries,
    "rewire": _rewire,
    "state_size": _state_size,
    "fixed_cost": _fixed_cost,
    "latency": _latency,
    "aggregates": _aggregates,
    "updates": _updates,
}

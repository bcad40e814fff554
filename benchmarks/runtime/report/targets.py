"""Targets of the runtime."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report.grids import Grid
from benchmarks.report.targets import SIZES, Figure, Target, table
from benchmarks.runtime.sharing import name_of

_GIGA = 10**9
#: Queries -> times the throughput, and the share of the state, of plans without sharing.
_WANTED = {5: (2.6, 3.1), 10: (3.5, 5.3)}


def targets(newest: Mapping[str, dict[str, Any]]) -> Grid:
    """Every target that there are figures for; ``newest``: part -> its newest line."""
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
            yield Target(f"{name}CPU", cpu, 8, False, 1, " s")
            peak = Figure.of(joint["peak_rss_bytes"], runs, _GIGA)
            yield Target(f"{name}peak RSS", peak, 2.5, False, 2, " GB")
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
            yield Target(what, ratio, 0.5, True, 2, " ×")


def _fixed_cost(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["counts"]:
        if one["queries"] == 50:
            what = "nearly empty batch with 50 queries, of an empty foreachBatch"
            ratio = Figure.of(one["ratio"], entry["settings"]["rounds"])
            yield Target(what, ratio, 1.5, False, 2, " ×")


def _latency(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["rates"]:
        for figure, limit in (("p50", 1), ("p99", 2)) if one["wanted"] == 50_000 else ():
            found = Figure.of(one[figure], entry["settings"]["runs"])
            yield Target(f"latency at 50,000 tuples/s, {figure}", found, limit, False, 2, " s")


_READERS = {
    "sharing": _sharing,
    "separate": _separate,
    "queries": _queries,
    "rewire": _rewire,
    "state_size": _state_size,
    "fixed_cost": _fixed_cost,
    "latency": _latency,
}

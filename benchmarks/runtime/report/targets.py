"""What the runtime is to reach, and what the newest figures say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.report.targets import Target, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.report.grids import Grid

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
        name = f"{count} queries, SF {scale:g}: "
        joint = work["optimizers"].get("clash")
        if joint is not None and count == 5 and scale in rates:
            rate = joint["tuples_per_s_without_enter"]["median"]
            what = f"{name}input tuples/s, not counting the wait for the planner"
            yield Target(what, rate, rates[scale], True, 0)
        if joint is not None and count == 5 and scale == 0.1:
            yield Target(f"{name}CPU", joint["cpu_seconds"]["median"], 8, False, 1, " s")
            peak = joint["peak_rss_bytes"]["median"] / _GIGA
            yield Target(f"{name}peak RSS", peak, 2.5, False, 2, " GB")
        faster, smaller = _WANTED[count]
        ratios = work["ratios"]
        if "individual" in ratios:
            one = ratios["individual"]
            yield Target(
                f"{name}throughput, joint against individual plans",
                one["throughput_without_enter"]["median"], faster, True, 2, " ×",
            )  # fmt: skip
            yield Target(
                f"{name}state, individual against joint plans",
                one["state"]["median"], smaller, True, 2, " ×",
            )  # fmt: skip
        if "shared" in ratios:
            rate = ratios["shared"]["throughput_without_enter"]["median"]
            what = f"{name}throughput, joint against shared plans"
            yield Target(what, rate, 1.5, True, 2, " ×")


def _separate(entry: dict[str, Any]) -> Iterator[Target]:
    faster, smaller = _WANTED[entry["queries"]]
    name = f"{entry['queries']} queries, SF {entry['scale']:g}: "
    ratios = entry["ratios"]
    what = f"{name}throughput, one joint pipeline against one for each query"
    yield Target(what, ratios["throughput"]["median"], faster, True, 2, " ×")
    what = f"{name}state, of one pipeline for each query against one joint"
    yield Target(what, ratios["state"]["median"], smaller, True, 2, " ×")


def _queries(entry: dict[str, Any]) -> Iterator[Target]:
    if "added" in entry:
        one = entry["added"]["written"]
        state = one["added_state_bytes"]["median"]
        yield Target("a query whose joins run: added state", state, 0, False, 0, " bytes")
        lost = one["throughput_lost"]["median"] * 100
        yield Target("a query whose joins run: throughput lost", lost, 2, False, 1, " %")
    last = entry.get("growth", {}).get("last")
    for by in ("ratio", "cpu_ratio") if last is not None else ():
        if last[by] is not None:
            name = "time" if by == "ratio" else "CPU"
            what = f"one more query at {last['to']}, of what the first costs ({name})"
            yield Target(what, last[by], 0.1, False, 3, " ×")


def _rewire(entry: dict[str, Any]) -> Iterator[Target]:
    ratio = entry["all"]["ratio"]["median"]
    yield Target("a batch during a rewire, of its neighbours'", ratio, 1.3, False, 2, " ×")
    if "revision" in entry["kinds"]:
        ratio = entry["kinds"]["revision"]["ratio"]["median"]
        yield Target(
            "the first batch of a revision, of its neighbours'", ratio, 1.1, False, 2, " ×"
        )


def _state_size(entry: dict[str, Any]) -> Iterator[Target]:
    for through in ("engine", "spark"):
        if through in entry:
            sizes = entry[through]["sizes"]
            last, first = sizes[-1]["stored"], sizes[0]["stored"]
            what = f"throughput at {last:,} stored tuples, of that at {first:,} ({through})"
            yield Target(what, entry[through]["last_over_first"], 0.5, True, 2, " ×")


def _fixed_cost(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["counts"]:
        if one["queries"] == 50:
            what = "nearly empty batch with 50 queries, of an empty foreachBatch"
            yield Target(what, one["ratio"]["median"], 1.5, False, 2, " ×")


def _latency(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["rates"]:
        if one["wanted"] == 50_000:
            yield Target("latency at 50,000 tuples/s, p50", one["p50"]["median"], 1, False, 2, " s")
            yield Target("latency at 50,000 tuples/s, p99", one["p99"]["median"], 2, False, 2, " s")


_READERS = {
    "sharing": _sharing,
    "separate": _separate,
    "queries": _queries,
    "rewire": _rewire,
    "state_size": _state_size,
    "fixed_cost": _fixed_cost,
    "latency": _latency,
}

"""Targets of the benchmarks of stored state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report.grids import Grid
from benchmarks.report.targets import Figure, Target, table

#: Share of the state's size up to which the multi-way join must be as fast as any tree.
_SCARCE = 0.8


def targets(newest: Mapping[str, dict[str, Any]]) -> Grid:
    """Return a table of all targets with figures; ``newest``: benchmark -> its newest line."""
    return table(_READERS, newest)


def _operations(entry: dict[str, Any]) -> Iterator[Target]:
    rounds = entry["settings"]["rounds"]

    def speed(found: dict[str, Any], kind: str, what: str) -> Figure:
        return Figure.of(found["per_second"][kind][what], rounds, 1000)

    for one in entry["sizes"]:
        batch, fits = f"batches of {one['batch']:,}", one["fits"]
        for what in ("hit", "miss"):
            name = f"{batch}: probes/s that {what}, lsm over"
            ours = speed(fits, "lsm", what)
            yield Target(
                f"{name} rocksdb", ours.over(speed(fits, "rocksdb", what)), 10, True, 1, " ×"
            )
            yield Target(
                f"{name} memory", ours.over(speed(fits, "memory", what)), 0.8, True, 2, " ×"
            )
            capped = one.get("capped", {})
            if "lsm_over" in capped:
                figure = speed(capped, "lsm", what).over(speed(capped, "rocksdb", what))
                yield Target(f"{name} rocksdb, where state does not fit", figure, 3, True, 1, " ×")
        share = speed(fits, "lsm", "hit").over(speed(fits, "lsm", "miss"))
        yield Target(f"{batch}: a miss, of the time of a hit", share, 0.2, False)


def _amplification(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["kept"]:
        kept = "rows needed " + ("for ever" if one["window"] is None else "for a window")
        found = {
            "write amplification": (one["write"], 6, 2),
            "space amplification": (one["space"]["median"], 1.3, 3),
            "the same at its peak": (one["space"]["high"], 1.3, 3),
        }
        for what, (figure, limit, digits) in found.items():
            yield Target(f"{kept}: {what}", Figure.counted(figure), limit, False, digits)


def _caps(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["runs"]:
        if one["kind"] == "lsm":
            of = "data" if one.get("of") == "data" else "need of the operator in memory"
            name = f"results that lsm has with {one['share']:g} of the {of}"
            yield Target(name, Figure.counted(100 * one["complete"], 1), 100, True, 1, " %")


def _budgets(entry: dict[str, Any]) -> Iterator[Target]:
    by_share: dict[float, dict[str, dict[str, Any]]] = {}
    for one in entry["runs"]:
        by_share.setdefault(one["share"], {})[one["operator"]] = one
    for share, both in sorted(by_share.items()):
        multi, tree = both["multi-way"], both["best tree"]
        if share < _SCARCE and multi["ended"] == "done":
            took = {
                "done": tree["seconds"],
                "stopped": entry["settings"]["patience"],
                # Without sufficient memory there are no results, however long it runs.
                "killed": math.inf,
            }[tree["ended"]]
            note = "" if tree["ended"] == "done" else f"the tree was {tree['ended']}"
            ratio = took / multi["seconds"]
            name = f"with {share:g} of its state: the best tree's time over the multi-way join's"
            yield Target(name, Figure.once(ratio), 1, True, 2, " ×", note=note)


def _crossover(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["ample"]:
        name = (
            f"without a cap, batches of {one['batch']:,}: the best tree's CPU over the"
            " multi-way join's"
        )
        ratio = Figure.of(one["cpu_ratio"], entry["settings"]["rounds"])
        yield Target(name, ratio, 1, True, 2, " ×")


_READERS = {
    "operations": _operations,
    "amplification": _amplification,
    "caps": _caps,
    "budgets": _budgets,
    "crossover": _crossover,
}

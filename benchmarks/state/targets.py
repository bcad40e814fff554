"""What the state store is to reach, and what the newest figures say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.report.targets import Target, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.report.grids import Grid

#: Up to this share of what its state takes the multi-way join has to be as fast as any tree.
_SCARCE = 0.8


def targets(newest: Mapping[str, dict[str, Any]]) -> Grid:
    """Every target that there are figures for; ``newest``: part -> its newest line."""
    return table(_READERS, newest)


def _operations(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["sizes"]:
        batch = f"batches of {one['batch']:,}"
        over = one["fits"]["lsm_over"]
        for what in ("hit", "miss"):
            name = f"{batch}: probes/s that {what}, lsm over"
            yield Target(f"{name} rocksdb", over["rocksdb"][what], 10, True, 1, " ×")
            yield Target(f"{name} memory", over["memory"][what], 0.8, True, 2, " ×")
            capped = one.get("capped", {}).get("lsm_over")
            if capped is not None:
                figure = capped["rocksdb"][what]
                yield Target(f"{name} rocksdb, where state does not fit", figure, 3, True, 1, " ×")
        speeds = one["fits"]["per_second"]["lsm"]
        share = speeds["hit"]["median"] / speeds["miss"]["median"]
        yield Target(f"{batch}: a miss, of what a hit takes", share, 0.2, False)


def _amplification(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["kept"]:
        kept = "rows needed " + ("for ever" if one["window"] is None else "for a window")
        yield Target(f"{kept}: write amplification", one["write"], 6, False)
        yield Target(f"{kept}: space amplification", one["space"]["median"], 1.3, False, 3)
        yield Target(f"{kept}: the same at its peak", one["space"]["high"], 1.3, False, 3)


def _caps(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["runs"]:
        if one["kind"] == "lsm":
            of = "data" if one.get("of") == "data" else "need of the operator in memory"
            name = f"results that lsm has with {one['share']:g} of the {of}"
            yield Target(name, 100 * one["complete"], 100, True, 1, " %")


def _budgets(entry: dict[str, Any]) -> Iterator[Target]:
    by_share: dict[float, dict[str, dict[str, Any]]] = {}
    for one in entry["runs"]:
        by_share.setdefault(one["share"], {})[one["operator"]] = one
    for share, both in sorted(by_share.items()):
        multi, tree = both["multi-way"], both["best tree"]
        if share < _SCARCE and multi["ended"] == "done":
            # Who did not come to its end would have taken longer.
            ratio = tree["seconds"] / multi["seconds"] if tree["ended"] == "done" else float("inf")
            name = f"with {share:g} of its state: the best tree's time over the multi-way join's"
            yield Target(name, ratio, 1, True, 2, " ×")


_READERS = {
    "operations": _operations,
    "amplification": _amplification,
    "caps": _caps,
    "budgets": _budgets,
}

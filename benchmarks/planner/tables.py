"""Figures of the planning benchmark as tables, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.planner.runs import PHASES
from benchmarks.planner.targets import MEBI, Kind, judged
from benchmarks.report.grids import Grid, columns, middle, percent, spread

_NONE = "–"


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables of one part, with its targets as the last one."""
    return [*figures_of(entry), *verdicts([entry])]


def figures_of(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables of one part without its targets."""
    return _OF_PART[entry["part"]](entry)


def verdicts(entries: Iterable[dict[str, Any]]) -> list[Grid]:
    """Return the table of targets and measured figures of all parts; empty without targets."""
    rows = [
        _verdict(v, entry["settings"]["seeds"])
        for entry in entries
        for v in entry.get("verdicts", ())
    ]
    if not rows:
        return []
    head = ("target", "measured with", "wanted", "found", "CPU", "runs or cases", "interval", "met")
    return [Grid("Targets", head, tuple(rows), texts=2)]


def _verdict(found: dict[str, Any], seeds: int) -> tuple[str, ...]:
    kind, shape, wanted = Kind(found["kind"]), found["shape"], found["wanted"]
    within, median = found["within"], found["found"]
    match kind:
        case Kind.PROVEN:
            cells = (f"{shape} proven optimal", f"≤ {wanted:g} s", _seconds(median))
            cells = (*cells[:2], f"{cells[2]}; {found['proven']} of {found['runs']} proven")
        case Kind.CERTIFIED:
            cells = (
                f"{shape} certified",
                f"gap ≤ {wanted:.1%} in {within:g} s",
                f"{percent(median, 2)} in {_seconds(found['seconds'])}",
            )
        case Kind.ADDED:
            cells = (
                f"{shape} and one query more",
                f"≤ {wanted:g} s, gap ≤ {within:.0%}",
                f"{_seconds(median)}, planning alone {_seconds(found['planning'])}; "
                f"gap {percent(found['gap'], 2)}",
            )
        case Kind.SAVED:
            cells = (f"{shape} probes saved", f"≥ {wanted:.0%}", percent(median))
        case Kind.FASTER:
            problems, runs, limited = (found[n] for n in ("problems", "runs", "at_least"))
            notes = f"; {limited} of {problems} are lower bounds" if limited else ""
            notes += f"; no ratio on {runs - problems} of {runs}" if problems < runs else ""
            cells = (f"{shape} tight against printed", f"≥ {wanted:g} ×", spread(median, 1) + notes)
        case Kind.ALONE:
            cells = (
                f"{shape} proven where printed is not in {within:g} s",
                "all",
                f"{median['median']:.0%} of {found['runs']}",
            )
        case Kind.MEMORY:
            most = found["found"]["high"] / MEBI
            cells = (
                f"peak memory, part {found['part']}",
                f"≤ {wanted / MEBI:g} MiB",
                f"{most:,.0f} MiB",
            )
    about = [f"parallelism {found['parallelism']}"]
    about += [f"{found['objective']} objective"] if "objective" in found else []
    cpu = _seconds(found["cpu"]) if "cpu" in found else ""
    figure, verdict = judged(found, seeds)
    percents = kind in (Kind.CERTIFIED, Kind.SAVED, Kind.ALONE)
    unit = 0.01 if percents else MEBI if kind is Kind.MEMORY else 1
    digits = 0 if kind is Kind.MEMORY else 1 if kind in (Kind.SAVED, Kind.FASTER) else 2
    _, runs, interval = figure.map(lambda value: value / unit).shown(
        digits if figure.value >= 1 or percents else 3, ""
    )
    return (cells[0], ", ".join(about), cells[1], cells[2], cpu, runs, interval, str(verdict))


def _seconds(found: dict[str, float]) -> str:
    return spread(found, 3 if found["median"] < 1 else 2) + " s"


def _targets(entry: dict[str, Any]) -> list[Grid]:
    rows = [
        (
            group["shape"],
            str(group["parallelism"]),
            f"{group['deadline']:g}",
            f"{group['proven']} of {group['runs']}",
            spread(group["seconds"], 3),
            spread(group["cpu"], 3),
            percent(group["gap"], 2),
            *(middle(group["phases"][phase], 0, 1e-3) for phase in PHASES),
            middle(group["variables"]),
            f"{group['peak_bytes'] / MEBI:,.0f}",
        )
        for group in entry["groups"]
    ]
    head = columns(
        ("problem", "parallelism", "deadline s", "proven", "seconds", "CPU s", "gap"),
        [f"{phase} ms" for phase in PHASES],
        ("variables", "peak MiB"),
    )
    times = Grid("Time to the proven optimum, or to the deadline", head, tuple(rows))
    rows = [
        (
            one["shape"],
            objective,
            middle(one["queries"]),
            middle(found["individual"]["probes"]),
            middle(found["clash"]["probes"]),
            percent(found["probes_saved"]),
            percent(found["cost_saved"]),
            percent(found["cost_saved_by_shared"]),
        )
        for one in entry["savings"]
        for objective, found in one["objectives"].items()
    ]
    head = columns(
        ("problem", "objective", "queries", "probes of individual plans", "of the joint plan"),
        ("probes saved", "probes and inserts saved", "saved by sharing equal parts only"),
    )
    return [times, Grid("Savings of joint plans", head, tuple(rows), texts=2)]


def _incremental(entry: dict[str, Any]) -> list[Grid]:
    rows = [
        (
            group["shape"],
            str(group["parallelism"]),
            spread(group["first"]["seconds"], 2),
            spread(group["planning"], 3),
            spread(group["added"]["seconds"], 3),
            spread(group["added"]["cpu"], 3),
            percent(group["added"]["gap"], 3),
            spread(group["improved"]["seconds"], 2),
            percent(group["improved"]["gap"], 3),
            f"{group['peak_bytes'] / MEBI:,.0f}",
        )
        for group in entry["groups"]
    ]
    head = columns(
        ("planned before", "parallelism", "first plan s", "planning one more s"),
        ("with its ruleset s", "CPU s", "gap", "improving all s", "gap then", "peak MiB"),
    )
    return [Grid("One query more", head, tuple(rows))]


def _figure9(entry: dict[str, Any]) -> list[Grid]:
    rows = [
        (
            f"{group['relations']} relations, {group['wanted']} queries",
            middle(group["clash"]["queries"]),
            middle(group["individual"]["probes"]),
            middle(group["clash"]["probes"]),
            percent(group["saved"]),
            *(
                _size(group["printed_sizes"], name, what)
                for name in ("plain", "decorated")
                for what in ("orders", "variables")
            ),
            middle(group["clash"]["variables"]),
            spread(group["printed"]["seconds"], 3) if "seconds" in group["printed"] else _NONE,
            f"{group['printed']['proven']} of {group['printed']['runs']}",
            spread(group["clash"]["seconds"], 3),
            f"{group['clash']['proven']} of {group['clash']['runs']}",
        )
        for group in entry["costs"]
    ]
    head = columns(
        ("queries of three drawn from", "distinct", "probes without sharing", "with sharing"),
        ("saved", "orders", "printed variables", "decorated orders"),
        ("decorated printed variables", "tight variables"),
        ("printed s", "proven", "tight s", "proven"),
    )
    costs = Grid("Fig. 9 (a) to (e)", head, tuple(rows))
    rows = [
        (
            f"{group['wanted']} queries of {group['size']}",
            spread(group["seconds"], 3),
            spread(group["cpu"], 3),
            f"{group['proven']} of {group['runs']}",
            percent(group["gap"], 2),
            middle(group["variables"]),
        )
        for group in entry["sizes"]
    ]
    head = ("queries", "seconds", "CPU s", "proven", "gap", "variables")
    return [costs, Grid("Fig. 9 (f)", head, tuple(rows))]


def _size(sizes: dict[str, Any], name: str, what: str) -> str:
    return middle(sizes[name][what]) if name in sizes else _NONE


def _rivals(entry: dict[str, Any]) -> list[Grid]:
    rows = [
        (
            group["shape"],
            str(group["parallelism"]),
            group["objective"],
            *(_contender(one) for one in group["contenders"]),
            *(
                middle(c["variables"]) if "variables" in c else _NONE
                for c in group["contenders"][:2]
            ),
            _ratio(group["ratio"], "wall"),
            _ratio(group["ratio"], "cpu"),
            _ratio(group["ratio_to_branch"], "wall"),
        )
        for group in entry["groups"]
    ]
    names = [f"{one['formulation']}, {one['solver']} s" for one in entry["groups"][0]["contenders"]]
    head = columns(
        ("problem", "parallelism", "objective"),
        names,
        ("paper variables", "tight variables", "times faster", "by CPU", "branch: times faster"),
    )
    return [Grid("Printed and tight formulation", head, tuple(rows))]


def _contender(one: dict[str, Any]) -> str:
    if "planning" not in one:
        return "refused: " + ", ".join(one["refused"])
    times = spread(one["planning"], 2 if one["planning"]["median"] >= 1 else 3)
    if one["proven"] == one["runs"]:
        return times
    refused = sum(one["refused"].values())
    declined = f", {refused} refused" if refused else ""
    return f"{times}; {one['proven']} of {one['runs']} proven{declined}"


def _ratio(found: dict[str, Any] | None, what: str) -> str:
    if found is None:
        return _NONE
    least = "≥ " if found["at_least"] else ""
    problems, runs = found["problems"], found["runs"]
    some = "" if problems == runs else f" on {problems} of {runs}"
    return least + spread(found[what], 1) + some


def _solvers(entry: dict[str, Any]) -> list[Grid]:
    shapes = list(dict.fromkeys(group["shape"] for group in entry["groups"]))
    found: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for group in entry["groups"]:
        found.setdefault((group["solver"], group["threads"]), {})[group["shape"]] = group
    rows = [
        (
            solver,
            str(threads),
            *(_contender(by_shape[shape]) for shape in shapes),
            f"{entry['smallest_plan'][solver]:.3f}",
        )
        for (solver, threads), by_shape in found.items()
    ]
    head = columns(("solver", "threads"), [f"{s} s" for s in shapes], ("three queries s",))
    return [Grid("The tight program by solver", head, tuple(rows))]


def _tpch(entry: dict[str, Any]) -> list[Grid]:
    rows = [
        (
            group["objective"],
            str(group["parallelism"]),
            *(
                middle(group["optimizers"][name]["cost"])
                for name in ("individual", "shared", "clash")
            ),
            f"{group['of_individual']['clash']['median']:.2f}",
            percent(group["optimizers"]["clash"]["gap"]),
            *(
                spread(group["optimizers"][name]["seconds"], 0, 1e-3)
                for name in ("individual", "shared", "clash")
            ),
        )
        for group in entry["groups"]
    ]
    head = columns(
        ("objective", "parallelism", "individual", "shared", "clash", "clash / individual"),
        ("gap", "individual ms", "shared ms", "clash ms"),
    )
    return [Grid(f"{entry['queries']} TPC-H queries", head, tuple(rows))]


def _mixed(entry: dict[str, Any]) -> list[Grid]:
    rows = [
        (
            group["mixture"],
            str(group["queries"]),
            f"{group['keys']:.0%}",
            f"{group['results']['median']:.1e}",
            *(spread(found[name], 2) for name in ("joint", "shared")),
            percent(found["gap"], 2),
        )
        for objective in entry["groups"][0]["objectives"]
        for group in entry["groups"]
        for found in [group["objectives"][objective]]
    ]
    objectives = [
        objective for objective in entry["groups"][0]["objectives"] for _ in entry["groups"]
    ]
    head = (
        *("objective", "joins", "queries", "foreign keys", "expected results of a set"),
        *("individual / joint", "individual / shared", "gap of the joint plan"),
    )
    found = tuple((objective, *row) for objective, row in zip(objectives, rows, strict=True))
    return [Grid("Costs of random TPC-H queries", head, found, texts=2)]


_OF_PART: dict[str, Callable[[dict[str, Any]], list[Grid]]] = {
    "targets": _targets,
    "incremental": _incremental,
    "figure9": _figure9,
    "rivals": _rivals,
    "solvers": _solvers,
    "tpch": _tpch,
    "mixed": _mixed,
}
